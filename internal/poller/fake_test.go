package poller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/message"
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
	waiting  []message.Claimed
	claims   map[message.ClaimToken]*fakeClaim
	used     map[string]uint64
	holder   string
	until    time.Time
	noLayout bool
	epoch    string

	requests  []request
	settles   []message.Settlement
	acked     []string
	dead      map[string]message.Verdict
	stales    int
	reclaims  []bool
	handOvers int

	// Hooks, called without the lock. before may fail the call, after may lose its answer.
	beforeClaim, afterClaim   func(message.ClaimRequest) error
	beforeSettle, afterSettle func(message.Settlement) error
}

type fakeClaim struct {
	messages []message.Claimed
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
	}
}

func (f *fakeStore) now() time.Time { return time.Now().Add(f.skew).Truncate(time.Millisecond) }

// add schedules messages, in IDs' order where they are due alike.
func (f *fakeStore) add(messages ...message.Claimed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, messages...)
	f.sort()
}

func (f *fakeStore) sort() {
	slices.SortFunc(f.waiting, func(a, b message.Claimed) int {
		return cmp.Or(a.DueAt.Compare(b.DueAt), cmp.Compare(a.ID, b.ID))
	})
}

func hook[T any](f func(T) error, value T) error {
	if f == nil {
		return nil
	}
	return f(value)
}

func (f *fakeStore) Claim(ctx context.Context, _ int, r message.ClaimRequest) (message.Claim, error) {
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
	if f.holder != r.Token.Instance && now.Before(f.until) {
		claim.State, claim.HeldFor = message.ClaimHeld, f.until.Sub(now)
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
	if len(f.waiting) > 0 {
		claim.NextDue = f.waiting[0].DueAt
		claim.More = r.Max > 0 && len(mine.messages) == r.Max && !claim.NextDue.After(now)
	}
	for _, c := range f.claims {
		claim.Expired = claim.Expired || c.deadline.Before(now)
	}
	return claim
}

func (f *fakeStore) take(r message.ClaimRequest, now time.Time) *fakeClaim {
	n := 0
	for n < len(f.waiting) && n < r.Max && !f.waiting[n].DueAt.After(now) {
		n++
	}
	c := &fakeClaim{messages: slices.Clone(f.waiting[:n]), deadline: now.Add(r.Timeout)}
	f.waiting = slices.Delete(f.waiting, 0, n)
	if n > 0 {
		f.claims[r.Token] = c
	}
	return c
}

func (f *fakeStore) Settle(ctx context.Context, _ int, s message.Settlement) (bool, error) {
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
	delete(f.claims, s.Claim.Token)
	for i, m := range s.Claim.Messages {
		verdict := s.Verdicts[i]
		m.Attempts = verdict.Attempts
		switch verdict.Verb {
		case message.VerbAck:
			f.acked = append(f.acked, m.ID)
		case message.VerbDeadLetter:
			f.dead[m.ID] = verdict
		case message.VerbRetry:
			m.DueAt = f.now().Add(verdict.Delay)
			f.waiting = append(f.waiting, m)
		case message.VerbRelease:
			f.waiting = append(f.waiting, m)
		}
	}
	f.sort()
	return false
}

func (f *fakeStore) Reclaim(_ context.Context, _ int, r message.Reclaim) (int, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reclaims = append(f.reclaims, r.Foreign)
	for token, c := range f.claims {
		if r.Foreign && token.Instance != r.Instance || !r.Foreign && c.deadline.Before(f.now()) {
			delete(f.claims, token)
			for _, m := range c.messages {
				m.Attempts.Begun++
				m.Attempts.MaybeOut++
				f.waiting = append(f.waiting, m)
			}
			f.sort()
			return len(c.messages), true, nil // One claim a call.
		}
	}
	return 0, false, nil
}

func (f *fakeStore) HandOver(ctx context.Context, _ int, instance string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.handOvers++
	if f.holder == instance {
		f.holder, f.until = "", time.Time{}
	}
	return ctx.Err()
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
	published []published
	under     int
	most      int // the most calls at a time
}

type published struct {
	ids []string
	at  time.Time
}

func (f *fakeSink) Route(m *message.Message) sinks.Route { return sinks.Route(m.Topic) }

func (f *fakeSink) Publish(ctx context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	for i, outcome := range f.publish(ctx, batch) {
		outcomes.Report(i, outcome)
	}
}

func (f *fakeSink) publish(ctx context.Context, batch []message.Message) []sinks.Outcome {
	f.mu.Lock()
	p := published{at: time.Now()}
	for i := range batch {
		p.ids = append(p.ids, batch[i].ID)
	}
	f.published = append(f.published, p)
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
	if !sleep(ctx, latency) {
		return all(batch, sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, ctx.Err()))
	}
	return all(batch, sinks.Acked())
}

func (f *fakeSink) set(behave func(context.Context, []message.Message) []sinks.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.behave = behave
}

func (f *fakeSink) Ping(context.Context) error  { return nil }
func (f *fakeSink) Close(context.Context) error { return nil }

func (f *fakeSink) calls() []published {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.published)
}

func all(batch []message.Message, outcome sinks.Outcome) []sinks.Outcome {
	outcomes := make([]sinks.Outcome, len(batch))
	sinks.Fill(outcomes, outcome)
	return outcomes
}

func due(id string, at time.Time) message.Claimed {
	return message.Claimed{Member: id, Message: message.Message{
		ID: id, Topic: "t", Queue: "q", DueAt: at, ScheduledAt: at.Add(-time.Hour), Attempt: 1,
	}}
}

func keyed(id, key string, at time.Time) message.Claimed {
	m := due(id, at)
	m.Key = key
	return m
}

// many are n messages due at once, m0000 on.
func many(n int, at time.Time) []message.Claimed {
	messages := make([]message.Claimed, n)
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
