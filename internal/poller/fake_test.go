package poller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errRedis  = errors.New("connection refused")
	errBroker = errors.New("broker trouble")
)

// fakeStore is one shard in memory, with the rules that the poller relies on.
type fakeStore struct {
	mu       sync.Mutex
	skew     time.Duration // Redis' clock minus ours
	waiting  []message.ClaimedMessage
	claims   map[message.ClaimToken]*fakeClaim
	used     map[string]uint64
	holder   string
	until    time.Time
	noLayout bool
	epoch    string
	routes   map[int]message.ParkedRoute

	requests  []request
	settles   []message.Settlement
	acked     []string
	dropped   []string
	dead      map[string]message.Verdict
	stales    int
	reclaims  []message.Reclaim
	handOvers int

	// Hooks, called without the lock. before may fail the call, after may lose its answer.
	beforeClaim, afterClaim   func(message.ClaimRequest) error
	confirm                   func(message.ClaimToken) error
	beforeSettle, afterSettle func(message.Settlement) error
}

type fakeClaim struct {
	messages []message.ClaimedMessage
	deadline time.Time
}

type request struct {
	message.ClaimRequest
	at    time.Time
	taken int
	state message.ClaimState
}

func newFakeStore() *fakeStore {
	return &fakeStore{
		claims: map[message.ClaimToken]*fakeClaim{},
		used:   map[string]uint64{},
		dead:   map[string]message.Verdict{},
		routes: map[int]message.ParkedRoute{},
	}
}

func (f *fakeStore) now() time.Time { return time.Now().Add(f.skew).Truncate(time.Millisecond) }

// add schedules messages, in IDs' order where they are due alike.
func (f *fakeStore) add(messages ...message.ClaimedMessage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range messages {
		f.put(m, 0, m.DueAt)
	}
}

// slotWidth is what a slot adds to a due time in milliseconds.
const slotWidth = 1 << 42

// put makes a message wait, in a slot or not.
func (f *fakeStore) put(m message.ClaimedMessage, slot int, at time.Time) {
	m.Score = int64(slot)*slotWidth + at.UnixMilli()
	i, _ := slices.BinarySearchFunc(f.waiting, m, func(a, b message.ClaimedMessage) int {
		return cmp.Or(cmp.Compare(a.Score, b.Score), cmp.Compare(a.ID, b.ID))
	})
	f.waiting = slices.Insert(f.waiting, i, m)
}

func slotOf(m *message.ClaimedMessage) int { return int(m.Score / slotWidth) }

// waitingSince is when the message can be taken.
func waitingSince(m *message.ClaimedMessage) time.Time { return time.UnixMilli(m.Score % slotWidth) }

// parked are the IDs that wait in slots.
func (f *fakeStore) parked() (ids []string) {
	f.read(func() {
		for i := range f.waiting {
			if slotOf(&f.waiting[i]) > 0 {
				ids = append(ids, f.waiting[i].ID)
			}
		}
	})
	return ids
}

// Parked implements [Store].
func (f *fakeStore) Parked(ctx context.Context) ([]message.ParkedRoute, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	slots := map[int]message.ParkedRoute{}
	for i := range f.waiting {
		if slot := slotOf(&f.waiting[i]); slot > 0 {
			p := f.routes[slot]
			p.Slot = slot
			p.Messages = slots[slot].Messages + 1
			slots[slot] = p
		}
	}
	return slices.Collect(maps.Values(slots)), ctx.Err()
}

func hook[T any](f func(T) error, value T) error {
	if f == nil {
		return nil
	}
	return f(value)
}

func (f *fakeStore) Claim(ctx context.Context, r message.ClaimRequest) (message.Claim, error) {
	f.mu.Lock()
	f.requests = append(f.requests, request{ClaimRequest: r, at: time.Now(), state: -1})
	index := len(f.requests) - 1
	f.mu.Unlock()
	if err := errors.Join(ctx.Err(), hook(f.beforeClaim, r)); err != nil {
		return message.Claim{}, err
	}
	claim := f.claim(r)
	f.mu.Lock()
	f.requests[index].state, f.requests[index].taken = claim.State, len(claim.Messages)
	f.mu.Unlock()
	return claim, hook(f.afterClaim, r)
}

func (f *fakeStore) claim(r message.ClaimRequest) message.Claim {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.now()
	claim := message.Claim{Token: r.Token, Now: now}
	if f.noLayout {
		claim.State = message.ClaimNoLayout
		return claim
	}
	if held := f.holder + fmt.Sprint("|", f.used[f.holder]); f.holder != r.Token.Instance && now.Before(f.until) && r.Seize != held {
		claim.State, claim.HeldFor, claim.Holder = message.ClaimHeld, f.until.Sub(now), held
		return claim
	}
	f.holder, f.until = r.Token.Instance, now.Add(r.Lease)
	for token := range f.claims {
		if token.Instance != r.Token.Instance {
			claim.State = message.ClaimReclaimFirst
			return claim
		}
	}
	mine := f.claims[r.Token]
	if mine == nil && r.Token.Number <= f.used[r.Token.Instance] {
		claim.State = message.ClaimOutdated
		return claim
	}
	claim.Last = f.used[r.Token.Instance]
	f.used[r.Token.Instance] = max(f.used[r.Token.Instance], r.Token.Number)
	for _, token := range r.Live {
		if c := f.claims[token]; c != nil {
			c.deadline = now.Add(r.Timeout)
		}
	}
	if mine == nil {
		mine = f.take(r, now)
	}
	claim.Messages, claim.Epoch = slices.Clone(mine.messages), f.epoch
	claim.More = r.Max > 0 && len(mine.messages) == r.Max
	if r.Slot > 0 {
		claim.More = slices.ContainsFunc(f.waiting, func(m message.ClaimedMessage) bool { return slotOf(&m) == r.Slot })
	}
	if len(f.waiting) > 0 && slotOf(&f.waiting[0]) == 0 {
		claim.NextDue = waitingSince(&f.waiting[0])
	}
	for token := range f.claims {
		if token != r.Token && !slices.Contains(r.Live, token) {
			claim.Strays = append(claim.Strays, token)
		}
	}
	return claim
}

func (f *fakeStore) take(r message.ClaimRequest, now time.Time) *fakeClaim {
	c, bytes, isFull := &fakeClaim{deadline: now.Add(r.Timeout)}, 0, false
	f.waiting = slices.DeleteFunc(f.waiting, func(m message.ClaimedMessage) bool {
		if isFull || len(c.messages) == r.Max || slotOf(&m) != r.Slot || waitingSince(&m).After(now) {
			return false
		}
		bytes += m.Size()
		if isFull = len(c.messages) > 0 && r.MaxBytes > 0 && bytes > r.MaxBytes; isFull {
			return false
		}
		c.messages = append(c.messages, m)
		return true
	})
	if len(c.messages) > 0 {
		f.claims[r.Token] = c
	}
	return c
}

func (f *fakeStore) Confirm(ctx context.Context, token message.ClaimToken) error {
	return errors.Join(ctx.Err(), hook(f.confirm, token))
}

func (f *fakeStore) Settle(ctx context.Context, s message.Settlement) (bool, error) {
	if err := errors.Join(ctx.Err(), hook(f.beforeSettle, s)); err != nil {
		return false, err
	}
	stale := f.settle(s)
	return stale, hook(f.afterSettle, s)
}

func (f *fakeStore) settle(s message.Settlement) (stale bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settles = append(f.settles, s)
	if f.claims[s.Claim.Token] == nil {
		if !s.Repeated {
			f.stales++
		}
		return !s.Repeated
	}
	same := func(a, b message.ClaimedMessage) bool { return a.Member == b.Member }
	if c := f.claims[s.Claim.Token]; !slices.EqualFunc(c.messages, s.Claim.Messages, same) {
		return !s.Repeated // A run that came late, or an earlier run has done it.
	}
	delete(f.claims, s.Claim.Token)
	for _, p := range s.Parks {
		f.routes[p.Slot] = p
	}
	var kept []message.ClaimedMessage
	for i, m := range s.Claim.Messages {
		verdict := s.Verdicts[i]
		if verdict.Verb == message.VerbKeep {
			kept = append(kept, m)
			continue
		}
		m.Attempts = verdict.Attempts
		switch verdict.Verb {
		case message.VerbAck:
			f.acked = append(f.acked, m.ID)
		case message.VerbDrop:
			f.dropped = append(f.dropped, m.ID)
		case message.VerbDeadLetter:
			f.dead[m.ID] = verdict
		case message.VerbRetry:
			f.put(m, 0, f.now().Add(verdict.Delay))
		case message.VerbRelease:
			f.put(m, 0, m.DueAt)
		case message.VerbPark:
			f.put(m, verdict.Slot, m.DueAt)
		case message.VerbKeep: // See above.
		}
	}
	if len(kept) > 0 {
		f.claims[s.Claim.Token] = &fakeClaim{messages: kept, deadline: f.now().Add(time.Minute)}
	}
	return false
}

func (f *fakeStore) Reclaim(_ context.Context, which message.Reclaim) (int, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reclaims = append(f.reclaims, which)
	for token, c := range f.claims {
		switch {
		case which.Foreign && token.Instance != which.Instance, token == which.Stray:
		case which == message.Reclaim{Instance: which.Instance} && c.deadline.Before(f.now()):
		default:
			continue
		}
		{
			delete(f.claims, token)
			for _, m := range c.messages {
				m.Attempts.Begun++
				m.Attempts.MaybeOut++
				f.put(m, slotOf(&m), waitingSince(&m))
			}
			return len(c.messages), true, nil // One claim a call.
		}
	}
	return 0, false, nil
}

func (f *fakeStore) HandOver(ctx context.Context, instance string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handOvers++
	if f.holder == instance {
		f.holder, f.until = "", time.Time{}
	}
	return ctx.Err()
}

// firstVerdict is the first that was settled on a message.
func (f *fakeStore) firstVerdict(id string) (verdict message.Verdict) {
	f.read(func() {
		for _, s := range slices.Backward(f.settles) {
			for i := range s.Verdicts {
				if s.Claim.Messages[i].ID == id && s.Verdicts[i].Verb != message.VerbKeep {
					verdict = s.Verdicts[i]
				}
			}
		}
	})
	return verdict
}

// read gives a look at the store under its lock.
func (f *fakeStore) read(look func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	look()
}

// takes are the requests that asked for messages.
func (f *fakeStore) takes() (takes []request) {
	f.read(func() {
		for _, r := range f.requests {
			if r.Max > 0 {
				takes = append(takes, r)
			}
		}
	})
	return takes
}

// fakeSink acknowledges after its latency, or does what behave says.
type fakeSink struct {
	mu        sync.Mutex
	latency   time.Duration
	behave    func(ctx context.Context, batch []message.Message) []sinks.Outcome
	published []fakePublish
	under     int
	most      int // the most calls at a time
}

type fakePublish struct {
	ids []string
	at  time.Time
}

func (f *fakeSink) Route(m *message.Message) sinks.Route { return sinks.Route(m.Topic) }

func (f *fakeSink) Publish(ctx context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	answers := f.publish(ctx, batch)
	for i := range batch {
		if i < len(answers) {
			outcomes.Report(i, answers[i])
		}
	}
}

// note notes a call.
func (f *fakeSink) note(batch []message.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := fakePublish{at: time.Now()}
	for i := range batch {
		p.ids = append(p.ids, batch[i].ID)
	}
	f.published = append(f.published, p)
}

func (f *fakeSink) publish(ctx context.Context, batch []message.Message) []sinks.Outcome {
	f.note(batch)
	f.mu.Lock()
	f.under++
	f.most = max(f.most, f.under)
	latency, behave := f.latency, f.behave
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.under--
		f.mu.Unlock()
	}()
	if behave != nil {
		return behave(ctx, batch)
	}
	if !wait.Sleep(ctx, latency) {
		return all(batch, sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, ctx.Err()))
	}
	return all(batch, sinks.Acked())
}

// last is in which call a message was published last.
func (f *fakeSink) last(id string) (call int) {
	for n, c := range f.calls() {
		if slices.Contains(c.ids, id) {
			call = n
		}
	}
	return call
}

func (f *fakeSink) set(behave func(context.Context, []message.Message) []sinks.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.behave = behave
}

func (f *fakeSink) Ping(context.Context) error  { return nil }
func (f *fakeSink) Close(context.Context) error { return nil }

func (f *fakeSink) calls() []fakePublish {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.published)
}

func all(batch []message.Message, outcome sinks.Outcome) []sinks.Outcome {
	return slices.Repeat([]sinks.Outcome{outcome}, len(batch))
}

func due(id string, at time.Time) message.ClaimedMessage {
	return message.ClaimedMessage{Member: id, Message: message.Message{
		ID: id, Topic: "t", Queue: "q", DueAt: at, ScheduledAt: at.Add(-time.Hour), Attempt: 1,
	}}
}

func keyed(id, key string, at time.Time) message.ClaimedMessage {
	m := due(id, at)
	m.Key = key
	return m
}

// many are n messages due at once, m0000 on.
func many(n int, at time.Time) []message.ClaimedMessage {
	messages := make([]message.ClaimedMessage, n)
	for i := range messages {
		messages[i] = due(fmt.Sprintf("m%04d", i), at)
	}
	return messages
}

// Short names for what behaviours are made of.
type (
	ctx     = context.Context
	outcome = sinks.Outcome
)

var acked = sinks.Acked()
