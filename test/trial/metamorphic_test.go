package trial_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/test/trial"
)

var programs = flag.String("servers", "", "programs that run as redis-server in TestMetamorphic, a comma list; else that of all tests")

// act is one step of a plan, about the one identity that a plan of its own has.
type act struct {
	verb   string
	due    time.Duration // from the plan's instant: hours ahead, or long past
	body   string
	isLate bool // it is too late when it is due, and dies
}

// planOf is what one producer does about an identity, one after the other. What waits is due in hours, and what is due
// was so an hour ago and is waited for: so no step meets another's effect, whatever the settings.
func planOf(random *rand.Rand) (acts []act) {
	for life := range 1 + random.IntN(2) {
		for range 1 + random.IntN(5) {
			verbs := []string{"schedule", "schedule", "keep", "replace", "cancel", "reschedule", "reschedule"}
			acts = append(acts, act{
				verb: verbs[random.IntN(len(verbs))], due: time.Hour * time.Duration(1+random.IntN(48)), body: strconv.Itoa(life*10 + len(acts)),
			})
		}
		end := act{verb: []string{"replace", "reschedule", "cancel", "replace"}[random.IntN(4)], due: -time.Hour, body: "last " + strconv.Itoa(life)}
		end.isLate = end.verb == "replace" && random.IntN(4) == 0
		acts = append(acts, end)
	}
	return acts
}

// settings are what must make no difference.
type settings struct {
	program                          string
	shards, reshard, batch, inFlight int
	takeover, batched, redundant     bool
	// lies has some cancels of what waits be taken for redundant ones, as a control.
	lies bool
}

func settingsOf(random *rand.Rand, n int) settings {
	list := strings.Split(*programs, ",")
	s := settings{
		program: list[n%len(list)], shards: 1 + random.IntN(64), batch: []int{1, 3, 50, 500}[random.IntN(4)], inFlight: 1 + random.IntN(4),
		takeover: n%2 == 0, batched: random.IntN(2) == 0, redundant: random.IntN(2) == 0 || n == 1,
	}
	if n%3 > 0 {
		s.reshard = 1 + random.IntN(64)
	}
	return s
}

// told is what became of an identity: the answers, and what arrived.
type told struct{ answers, deliveries []string }

// TestMetamorphic runs the same plans in worlds of other settings (shards, batches, servers; a reshard or the death of a
// bridge midway), and with redundant cancels, reschedules and gets among them: each identity gets the same answers and
// the same deliveries.
func TestMetamorphic(t *testing.T) {
	random := rand.New(rand.NewPCG(*seed, 21)) //nolint:gosec // a seed makes the plans repeatable
	refs, plans := make([]delay.Ref, size(200, 2000)), map[delay.Ref][]act{}
	acts := 0
	for n := range refs { // Each id is there with two keys, and a key has many ids.
		refs[n] = delay.Ref{ID: fmt.Sprint("m", n/2), Key: fmt.Sprint("k", n%2, n%7)}
		plans[refs[n]] = planOf(random)
		acts += len(plans[refs[n]])
	}
	play := func(s settings) (results map[delay.Ref]*told) {
		t.Run(fmt.Sprintf("%+v", s), func(t *testing.T) { results = s.play(t, refs, plans) })
		require.NotNil(t, results)
		return results
	}
	want := play(settings{shards: 4, batch: 500, inFlight: 4})
	for n := range size(3, 24) {
		s := settingsOf(random, n)
		assert.Empty(t, differences(refs, want, play(s)), "seed %d: %+v", *seed, s)
	}
	t.Logf("%d acts about %d identities in each", acts, len(refs))
	lies := settings{shards: 4, batch: 500, inFlight: 4, redundant: true, lies: true}
	found := len(differences(refs, want, play(lies)))
	assert.Positive(t, found, "a cancel that is not redundant must show, unless a replace comes next")
	assert.LessOrEqual(t, found, mostLies)
}

// mostLies is how many redundant cancels are none, where a world lies.
const mostLies = 20

// differences are told by identity, the first few.
func differences(refs []delay.Ref, want, got map[delay.Ref]*told) (all []string) {
	for _, ref := range refs {
		if w, g := want[ref], got[ref]; !slices.Equal(w.answers, g.answers) || !slices.Equal(w.deliveries, g.deliveries) {
			all = append(all, fmt.Sprintf("%v: %q, want %q", ref, *g, *w))
		}
	}
	return all[:min(len(all), 9)]
}

// stage is a world in which plans are played.
type stage struct {
	settings

	world    *trial.World
	client   *delay.Client
	base     time.Time
	lied     atomic.Int32
	mu       sync.Mutex
	arrivals map[delay.Ref][]string
	copies   int
}

// play does what the plans say, each identity beside others, and returns what became of all.
func (s settings) play(t *testing.T, refs []delay.Ref, plans map[delay.Ref][]act) map[delay.Ref]*told {
	t.Helper()
	w := newWorld(t, trial.Options{
		Program: s.program, Shards: s.shards, Copies: true, Config: fmt.Sprintf("poller: {batch: %d, in_flight: %d}\n", s.batch, s.inFlight),
	})
	if s.takeover {
		second, err := w.SecondBridge(t.Context())
		require.NoError(t, err)
		require.NoError(t, second.Start(t.Context()))
	}
	client, err := delay.NewClient(w.RDB, w.Queue(), delay.WithPrefix(w.Prefix()), delay.WithCoalescing(!s.batched))
	require.NoError(t, err)
	g := &stage{settings: s, world: w, client: client, base: time.Now().Truncate(time.Second), arrivals: map[delay.Ref][]string{}}
	reading, stop := context.WithCancel(t.Context())
	defer stop()
	var reader, producers errgroup.Group
	reader.Go(func() error { return w.Broker.Consume(reading, w.Topic, g.got) })
	results := map[delay.Ref]*told{}
	for _, ref := range refs {
		results[ref] = &told{}
	}
	producers.SetLimit(32)
	for n, ref := range refs {
		if n == len(refs)/2 {
			producers.Go(func() error { return g.trouble(t) })
		}
		producers.Go(func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			random := rand.New(rand.NewPCG(*seed, uint64(n))) //nolint:gosec // as above
			return g.perform(ctx, ref, plans[ref], results[ref], random)
		})
	}
	require.NoError(t, producers.Wait())
	g.collect(t, results)
	stop()
	require.NoError(t, reader.Wait())
	return results
}

// collect waits until all that was stored has been read, and takes what arrived.
func (g *stage) collect(t *testing.T, results map[delay.Ref]*told) {
	t.Helper()
	stored, err := g.world.Broker.Stored(t.Context(), g.world.Topic)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		read := g.copies
		for _, list := range g.arrivals {
			read += len(list)
		}
		return int64(read) == stored
	}, time.Minute, 10*time.Millisecond)
	for ref, list := range g.arrivals {
		results[ref].deliveries = list
	}
	if !g.takeover {
		assert.Zero(t, g.copies, "copies without a fault")
	}
}

// got takes an arrival; copies of it count once.
func (g *stage) got(r trial.Record) {
	due, _ := time.Parse(time.RFC3339Nano, r.Headers["delay-due-at"])
	ref := delay.Ref{ID: r.ID, Key: r.Headers["key"]}
	text := fmt.Sprintf("%q due %s", r.Body, due.Sub(g.base))
	g.mu.Lock()
	defer g.mu.Unlock()
	if slices.Contains(g.arrivals[ref], text) {
		g.copies++
		return
	}
	g.arrivals[ref] = append(g.arrivals[ref], text)
}

// trouble is what happens midway.
func (g *stage) trouble(t *testing.T) error {
	if g.takeover {
		if err := g.world.Bridge.Kill(); err != nil {
			return err
		}
	}
	if g.reshard == 0 {
		return nil
	}
	out, err := command(t, "", binary, "shards", "set", strconv.Itoa(g.reshard), "--config", g.world.Bridge.Config, "--queue", g.world.Queue())
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// perform plays one identity's plan.
func (g *stage) perform(ctx context.Context, ref delay.Ref, acts []act, to *told, random *rand.Rand) error {
	var waits *act // what is there now
	for i := range acts {
		a := &acts[i]
		err := g.act(ctx, ref, a)
		to.answers = append(to.answers, fmt.Sprintf("%s: %s", a.verb, kindOf(err)))
		switch {
		case a.verb == "cancel", a.verb == "reschedule" && err != nil:
			waits = nil
		case err == nil && (a.verb != "keep" || waits == nil):
			waits = a
		}
		if waits != nil && waits.due < 0 {
			state, err := g.ended(ctx, ref)
			if err != nil {
				return err
			}
			to.answers, waits = append(to.answers, state), nil
		} else if g.redundant && random.IntN(2) == 0 {
			if err := g.addRedundant(ctx, ref, random); err != nil {
				return fmt.Errorf("a redundant call beside %v: %w", ref, err)
			}
		}
	}
	return nil
}

func kindOf(err error) string {
	for _, known := range []error{delay.ErrDuplicate, delay.ErrNotFound, delay.ErrTooLate, delay.ErrUnknown, delay.ErrUnavailable} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return fmt.Sprint(err)
}

// act takes a step. After a takeover, a message may be marked, also as a dead letter that is put back.
func (g *stage) act(ctx context.Context, ref delay.Ref, a *act) error {
	err := g.call(ctx, ref, a)
	if g.takeover && errors.Is(err, delay.ErrMaybePublished) {
		return nil
	}
	return err
}

func (g *stage) call(ctx context.Context, ref delay.Ref, a *act) error {
	at := delay.At(g.base.Add(a.due))
	switch {
	case a.verb == "cancel" && g.batched:
		results, _ := g.client.CancelBatch(ctx, []delay.Ref{{ID: ref.ID + "-never", Key: ref.Key}, ref})
		return results[1].Err
	case a.verb == "cancel":
		return g.client.Cancel(ctx, ref)
	case a.verb == "reschedule":
		return g.client.Reschedule(ctx, ref, at)
	}
	policy := map[string]delay.Conflict{"schedule": delay.Reject, "keep": delay.Keep, "replace": delay.Replace}[a.verb]
	m := delay.Message{ID: ref.ID, Key: ref.Key, Topic: g.world.Topic, Headers: map[string]string{"key": ref.Key}, Body: []byte(a.body)}
	if a.isLate {
		m.Late = delay.Late{After: time.Second, Then: delay.LateDead}
	}
	results, _ := g.client.ScheduleBatch(ctx, []delay.Request{{Message: m, When: at, Conflict: policy}})
	return results[0].Err
}

// ended waits until the message is no longer waiting or in flight, and says what has become of it.
func (g *stage) ended(ctx context.Context, ref delay.Ref) (string, error) {
	for {
		info, err := g.client.Get(ctx, ref)
		switch {
		case errors.Is(err, delay.ErrNotFound):
			return "gone", nil
		case err != nil:
			return "", err
		case info.State == delay.Dead:
			return "dead", nil
		}
		if err := trial.Sleep(ctx, 10*time.Millisecond); err != nil {
			return "", fmt.Errorf("%v is %s: %w", ref, info.State, err)
		}
	}
}

// addRedundant makes calls that change nothing, and says if one of them was answered otherwise.
func (g *stage) addRedundant(ctx context.Context, ref delay.Ref, random *rand.Rand) error {
	other := delay.Ref{ID: ref.ID, Key: ref.Key + "-other"}
	never := delay.Ref{ID: ref.ID + "-never", Key: ref.Key}
	for _, ref := range []delay.Ref{other, never} {
		cancelled, moved := g.client.Cancel(ctx, ref), g.client.Reschedule(ctx, ref, delay.After(0))
		if !errors.Is(cancelled, delay.ErrNotFound) || !errors.Is(moved, delay.ErrNotFound) {
			return fmt.Errorf("cancel and reschedule of %v, which never was: %w", ref, errors.Join(cancelled, moved, errors.New("not as wanted")))
		}
	}
	if random.IntN(200) == 0 { // It looks for the id with any key, and changes nothing.
		if err := g.client.Cancel(ctx, delay.Ref{ID: ref.ID}); !errors.Is(err, delay.ErrNotFound) && !errors.Is(err, delay.ErrInvalid) {
			return fmt.Errorf("cancel without its key: %w", err)
		}
	}
	info, err := g.client.Get(ctx, ref)
	switch {
	case errors.Is(err, delay.ErrNotFound):
		if err := g.client.Cancel(ctx, ref); !errors.Is(err, delay.ErrNotFound) {
			return fmt.Errorf("cancel of what is gone: %w", err)
		}
		return nil
	case err != nil, info.State == delay.Dead:
		return err
	case g.lies && g.lied.Add(1) <= mostLies:
		return g.client.Cancel(ctx, ref)
	}
	moved := act{verb: "reschedule", due: info.DueAt.Sub(g.base)}
	again := act{verb: "keep", due: time.Hour, body: "never"}
	return errors.Join(g.act(ctx, ref, &moved), g.act(ctx, ref, &again))
}
