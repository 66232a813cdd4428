package recurring

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

var stories = flag.Int("stories", 32, "how many stories TestStories plays")

const (
	atOnce     = 48 // stories
	storyLasts = 6 * time.Second
	mostJitter = 500 * time.Millisecond
	// runTimeout is how long a run of a script may take: short, so that much of what is lost is tried again.
	runTimeout = 150 * time.Millisecond
)

var errLost = errors.New("lost by the test")

// network loses commands, and answers, and keeps commands back that arrive when nobody waits for them any more.
type network struct {
	mu     sync.Mutex
	random *rand.Rand
	isWell bool
	late   sync.WaitGroup
}

func (n *network) draw() (what int, after time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.isWell {
		return 9, 0
	}
	return n.random.IntN(24), time.Duration(n.random.IntN(3000)) * time.Millisecond
}

func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isWell = true
}

func (n *network) DialHook(next redis.DialHook) redis.DialHook { return next }

func (n *network) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		what, after := n.draw()
		switch what {
		case 0: // It never arrives.
			cmd.SetErr(errLost)
			return errLost
		case 1: // Its answer is lost.
			_ = next(ctx, cmd)
			cmd.SetErr(errLost)
			return errLost
		case 2: // It arrives late. A copy, since the caller has the command.
			again := redis.NewCmd(context.WithoutCancel(ctx), cmd.Args()...)
			n.late.Go(func() { time.Sleep(after); _ = next(context.WithoutCancel(ctx), again) }) //nolint:forbidigo // it is the network
			cmd.SetErr(errLost)
			return errLost
		}
		return next(ctx, cmd)
	}
}

func (n *network) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// told is what an operator knows of a body: from when until when its firings are in force, and from when none may come.
type told struct{ from, to, none time.Time }

// firing is one of a body, at its nominal time.
type firing struct {
	body string
	at   int64
}

// round is one in which all that was due was claimed.
type round struct{ began, ended time.Time }

// published is a firing as it was claimed.
type published struct {
	id, body string
	due      time.Time
}

// story is one schedule, several planners that fail, and an operator who sets, pauses, resumes and deletes it.
type story struct {
	t      *testing.T
	seed   uint64
	net    *network
	random *rand.Rand
	q      *store.Queue // by the failing network
	well   *store.Queue
	told   map[string]*told
	out    []published
	rounds []round

	mu sync.Mutex
	// made has since when a record says that a firing is a message.
	made map[firing]time.Time
	must int64 // how many firings had to come
}

func newStory(t *testing.T, seed uint64) *story {
	t.Helper()
	s := &story{t: t, seed: seed, net: &network{random: rand.New(rand.NewPCG(seed, 1))}, random: rand.New(rand.NewPCG(seed, 2)), told: map[string]*told{}, made: map[firing]time.Time{}}
	options, err := redis.ParseURL(testenv.Redis(t))
	s.check(err)
	options.PoolSize = 4
	well, failing := redis.NewClient(options), redis.NewClient(options)
	t.Cleanup(func() { _, _ = well.Close(), failing.Close() })
	s.well = storetest.New(t, well, 2)
	failing.AddHook(s.net)
	s.q = store.NewWithTimeout(struct{ redis.UniversalClient }{failing}, storetest.Prefix, s.well.Name(), runTimeout)
	return s
}

// plans makes steps, from what it has read now or before, and dies in the middle of some.
func (s *story) plans(ctx context.Context, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 3))
	schedules := New(s.q, store.Durability{})
	var old []Kept
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, time.Duration(1+random.IntN(400))*time.Millisecond)
		if all, _, err := schedules.List(limited); err == nil {
			old = append(old, all...)
			s.notes(all)
		}
		if len(old) > 0 {
			kept := old[len(old)-1-random.IntN(min(len(old), 4))]
			_, _ = schedules.Step(limited, kept)
		}
		cancel()
		time.Sleep(time.Duration(random.IntN(60)) * time.Millisecond) //nolint:forbidigo // a planner rests
	}
}

// notes keeps which firings are messages by now, as the records have it.
func (s *story) notes(all []Kept) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kept := range all {
		for at := kept.SetAt.Unix(); at <= kept.Planned.Unix() && kept.Stale == nil; at++ {
			if f := (firing{string(kept.Body), at}); s.made[f].IsZero() && !slices.Contains(kept.Pending, at) {
				s.made[f] = now
			}
		}
	}
}

// operates changes the schedule, and notes what it was answered.
func (s *story) operates(ctx context.Context) {
	schedules, in := New(s.q, store.Durability{}), "" // in: the body in force, as far as that is known
	for n := 0; ctx.Err() == nil; n++ {
		began := s.now()
		verb := s.random.IntN(6)
		body := fmt.Sprint("body ", n)
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		var r Record
		var err error
		switch {
		case verb < 4:
			r, _, err = schedules.Set(limited, "n", Spec{Cron: "@every 1s", Topic: "t", Body: []byte(body), Jitter: time.Duration(s.random.IntN(2)) * mostJitter})
		case verb == 4:
			_, err = schedules.Pause(limited, "n", "")
		default:
			_, err = schedules.Delete(limited, "n")
		}
		cancel()
		answered := s.now()
		if errors.Is(err, ErrNone) {
			err = nil
		}
		if in != "" {
			s.told[in].to = began
		}
		if err == nil { // Nothing of before may come any more.
			for _, t := range s.told {
				if t.none.IsZero() {
					t.none = answered
				}
			}
		}
		if in = ""; verb < 4 {
			s.told[body] = &told{}
			if err == nil && r.Paused.IsZero() {
				in, s.told[body].from = body, answered
			}
			if err == nil && !r.Paused.IsZero() {
				limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
				if _, err := schedules.Resume(limited, "n"); err == nil {
					in, s.told[body].from = body, s.now()
				}
				cancel()
			}
		}
		time.Sleep(time.Duration(200+s.random.IntN(2500)) * time.Millisecond) //nolint:forbidigo // time for firings
	}
	if in != "" {
		s.told[in].to = s.now()
	}
}

func (s *story) now() time.Time {
	now, err := s.well.Redis(s.t.Context()).Time(s.t.Context()).Result()
	s.check(err)
	return now
}

// publishes claims all that is due, and settles it, at last once more after ctx has ended.
func (s *story) publishes(ctx context.Context) {
	for number, isLast := uint64(1), false; !isLast; number++ {
		isLast = ctx.Err() != nil
		began := time.Now()
		for shard := range 2 {
			claim, err := s.well.Shard(shard).Claim(s.t.Context(), message.ClaimRequest{
				Token: message.ClaimToken{Instance: "bridge/boot", Number: number}, Max: store.MaxBatch, Timeout: time.Minute, Lease: time.Minute,
			})
			s.check(err)
			settlement := message.Settlement{Claim: claim}
			for _, m := range claim.Messages {
				s.out = append(s.out, published{m.ID, string(m.Body), m.DueAt})
				settlement.Verdicts = append(settlement.Verdicts, message.Verdict{Verb: message.VerbAck})
			}
			if len(claim.Messages) > 0 {
				_, err = s.well.Shard(shard).Settle(s.t.Context(), settlement)
				s.check(err)
			}
		}
		s.rounds = append(s.rounds, round{began, time.Now()})
		time.Sleep(20 * time.Millisecond) //nolint:forbidigo // a poll
	}
}

// judge compares what came out with what was told.
func (s *story) judge() {
	came := map[string]bool{}
	for _, p := range s.out {
		if came[p.id+p.body] {
			s.fail("%s is two messages", p.id)
		}
		came[p.id+p.body] = true
		t := s.told[p.body]
		switch {
		case t == nil:
			s.fail("%s has the body %q", p.id, p.body)
		case !t.none.IsZero() && p.due.After(t.none):
			s.fail("%s of %q is due at %s, and it had ended at %s", p.id, p.body, p.due, t.none)
		}
	}
	for f, made := range s.made {
		if !s.mustCome(f, made) {
			continue
		}
		if s.must++; !came[FiringID("n", f.at)+f.body] {
			s.fail("%s of %q is missing: it was a message at %s, and in force from %s to %s", FiringID("n", f.at), f.body, made, s.told[f.body].from, s.told[f.body].to)
		}
	}
}

// mustCome tells whether a firing was a message and due before a round, and in force until that ended.
func (s *story) mustCome(f firing, made time.Time) bool {
	t := s.told[f.body]
	if t.from.IsZero() || f.at <= t.from.Unix() {
		return false
	}
	ready := time.Unix(f.at, 0).Add(mostJitter)
	if made.After(ready) {
		ready = made
	}
	return slices.ContainsFunc(s.rounds, func(r round) bool { return r.began.After(ready) && r.ended.Before(t.to) })
}

func (s *story) fail(format string, args ...any) {
	s.t.Errorf("story %d: "+format, append([]any{s.seed}, args...)...)
}

// check ends the story if there is an error.
func (s *story) check(err error) {
	if err != nil {
		s.fail("%s", err)
		runtime.Goexit()
	}
}

// TestStories: whatever gets lost or comes late, each firing of what is in force comes once, and none of what has ended.
func TestStories(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	gate := make(chan struct{}, atOnce)
	var firings atomic.Int64
	var all sync.WaitGroup
	for seed := range uint64(*stories) { //nolint:gosec // a number of stories
		gate <- struct{}{}
		all.Go(func() {
			defer func() { <-gate }()
			firings.Add(newStory(t, seed).play(seed))
		})
	}
	all.Wait()
	if firings.Load() == 0 { // There are few where the machine is busy.
		t.Error("no firing had to come: nothing was checked")
	}
	t.Logf("%d stories, %d firings that had to come", *stories, firings.Load())
}

// play returns how many firings had to come, and came.
func (s *story) play(seed uint64) int64 {
	living, end := context.WithTimeout(s.t.Context(), storyLasts)
	defer end()
	publishing, stop := context.WithCancel(s.t.Context())
	defer stop()
	var planners, publisher sync.WaitGroup
	publisher.Go(func() { s.publishes(publishing) })
	for n := range uint64(3) {
		planners.Go(func() { s.plans(living, seed*10+n) })
	}
	s.operates(living)
	planners.Wait()
	s.net.heal()
	s.net.late.Wait()
	schedules := New(s.well, store.Durability{})
	all, _, err := schedules.List(s.t.Context())
	s.check(err)
	for _, kept := range all {
		_, err = schedules.Step(s.t.Context(), kept)
		s.check(err)
	}
	time.Sleep(3 * time.Second) //nolint:forbidigo // Nothing tells that no firing of what has ended comes.
	stop()
	publisher.Wait()
	s.judge()
	return s.must
}
