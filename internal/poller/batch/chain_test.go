package batch

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/poller/routes"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// flight is one whose batches are made of Keys.
type flight struct {
	*Flight
	made uint64
}

func newFlight() *flight {
	return &flight{Flight: NewFlight(routes.New(routes.Config{
		Log: slog.New(slog.DiscardHandler), Slots: 3, SayNow: func(string) bool { return false },
		Name:     func(m *message.Message) sinks.Route { return sinks.Route(m.Topic) },
		Suspects: &routes.Suspects{},
		Backoff:  func(initial, limit time.Duration) wait.Backoff { return wait.Backoff{Initial: initial, Limit: limit} },
	}))}
}

// add claims a message of each Key; an empty one is no Key.
func (f *flight) add(keys ...string) *Batch { return f.addParked(nil, keys...) }

func (f *flight) addParked(parked []routes.Parking, keys ...string) *Batch {
	f.made++
	c := Claim{Lease: (&Lease{}).Renew(0, time.Hour), Deadline: time.Hour, Parked: parked}
	c.Token.Number = f.made
	for _, key := range keys {
		c.Messages = append(c.Messages, message.ClaimedMessage{Message: message.Message{ID: "m", Topic: "t", Key: key}})
	}
	return f.Flight.Add(c, 0)
}

// decide gives messages of a batch verdicts.
func (f *flight) decide(b *Batch, verb message.Verb, indices ...int) {
	for _, i := range indices {
		f.Decide(b, i, message.Verdict{Verb: verb}, nil, 0)
	}
}

// settle writes what is decided.
func (f *flight) settle(b *Batch) {
	b.Settle(0, f.routes)
	f.EndSettle(b, true, 0)
}

// heard are what batches were told since the last call.
func (f *flight) heard() (heard []clearance) {
	for {
		b, ready, back := f.Next()
		if b == nil {
			return heard
		}
		heard = append(heard, clearance{b.Token.Number, ready, back})
	}
}

// clearance lists messages of a batch that need not wait any more.
type clearance struct {
	batch       uint64
	ready, back []int
}

const (
	ack     = message.VerbAck
	release = message.VerbRelease
)

// TestChainsWait checks I15 among batches.
func TestChainsWait(t *testing.T) {
	t.Parallel()
	f := newFlight()
	first, second := f.add("a", "b", "", "a", "c"), f.add("b", "x", "a", "", "a")
	assert.Empty(t, first.Indices(Behind))
	assert.Equal(t, []int{0, 2, 4}, second.Indices(Behind))

	f.decide(first, ack, 0, 2, 4)
	assert.Empty(t, f.heard(), "nobody asked about c, and one of a is left")
	f.decide(first, ack, 3, 1)
	assert.Equal(t, []clearance{{2, []int{0, 2, 4}, nil}}, f.heard())
	assert.Equal(t, []int{0, 1, 2, 3, 4}, second.Indices(Held))

	// What has passed keeps nobody back; what goes back does, until it is there.
	third := f.add("c", "x")
	assert.Equal(t, []int{1}, third.Indices(Behind))
	f.decide(second, release, 1)
	assert.Equal(t, []clearance{{3, nil, []int{1}}}, f.heard())
	f.decide(second, ack, 0, 2)
	f.decide(second, release, 4)
	fourth := f.add("b", "a")
	assert.Equal(t, []int{1}, fourth.Indices(Behind))
	assert.Equal(t, []clearance{{4, nil, []int{1}}}, f.heard(), "told at once")
	f.decide(fourth, release, 1)

	// Whoever is claimed after it is back is claimed with it, though its batch lives on.
	f.settle(second)
	f.settle(fourth)
	assert.Empty(t, f.add("a").Indices(Behind))
	assert.Positive(t, second.Open()+fourth.Open())
}

// A claim without an answer may have been made before what went back was there.
func TestChainsWaitForAnAnswer(t *testing.T) {
	t.Parallel()
	f := newFlight()
	first := f.add("a")
	f.BeginClaim()
	f.decide(first, release, 0)
	f.settle(first)
	asked := f.add("a")
	assert.Equal(t, []clearance{{2, nil, []int{0}}}, f.heard())
	f.EndClaim()
	f.decide(asked, release, 0)
	f.settle(asked)
	assert.Empty(t, f.add("a").Indices(Behind))
}

// What has nothing under way any more leaves its chains to what is before it.
func TestChainsOfLostClaims(t *testing.T) {
	t.Parallel()
	f := newFlight()
	first, second, third := f.add("a", "b"), f.add("a", "b"), f.add("a")
	f.Fail(second, 0)
	assert.Equal(t, []clearance{{3, nil, []int{0}}}, f.heard(), "nobody waits for what is lost")
	require.Equal(t, []*Batch{second}, f.Prune())
	f.Forget(second, 0)
	again := f.add("b", "a")
	f.decide(first, ack, 1)
	assert.Equal(t, []clearance{{4, []int{0}, nil}}, f.heard(), "it waits for the first")
	f.decide(third, ack, 0)
	assert.Equal(t, []clearance{{4, []int{1}, nil}}, f.heard(), "and here for the third")
	f.decide(again, ack, 0, 1)
	assert.Positive(t, f.Chains())
	f.Fail(first, 0)
	f.Forget(first, 0)
	assert.Zero(t, f.Chains())
}

// What is parked when it is claimed waits for nobody, and is no predecessor: whatever is claimed
// of its chain after it is parked, too, until it is in the slot.
func TestParkedMessagesOfChains(t *testing.T) {
	t.Parallel()
	f := newFlight()
	m := message.Message{Topic: "t"}
	in := f.routes.Fail(&m, sinks.Failed(sinks.Unavailable, sinks.ReasonFull, nil), 0, time.Time{})
	f.routes.Park("", &m)
	first := f.addParked([]routes.Parking{{Index: 1, Route: in}, {Index: 2, Route: in}}, "a", "b", "a")
	second := f.add("a", "b")
	assert.Equal(t, []int{0}, second.Indices(Behind))
	assert.Empty(t, f.heard())
	f.decide(first, ack, 0)
	assert.Equal(t, []clearance{{2, []int{0}, nil}}, f.heard())
	assert.True(t, f.routes.IsClosed(&m))
	f.decide(second, ack, 0, 1)
	assert.Zero(t, f.Chains())
	f.settle(first)
	pending, _, _ := in.InFlight()
	assert.Zero(t, pending)
}

// What waits for earlier messages goes back where its route was closed meanwhile: no more follow into it.
func TestChainsOfClosedRoutes(t *testing.T) {
	t.Parallel()
	f := newFlight()
	f.add("a")
	second := f.add("a")
	f.GiveBack(false)
	assert.Empty(t, f.heard())
	f.routes.Fail(&message.Message{Topic: "t"}, sinks.Failed(sinks.Unavailable, sinks.ReasonFull, nil), 0, time.Time{})
	f.GiveBack(false)
	assert.Equal(t, []clearance{{2, nil, []int{0}}}, f.heard())
	assert.Equal(t, []int{0}, second.Indices(Held))
}

// A lost claim stays while another has no answer: that one may be of messages behind it.
func TestLostClaimsStayForAnAnswer(t *testing.T) {
	t.Parallel()
	f := newFlight()
	lost := f.add("a")
	f.BeginClaim()
	f.Fail(lost, 0)
	assert.Empty(t, f.Prune())
	f.EndClaim()
	assert.Equal(t, []*Batch{lost}, f.Prune())
}

// TestAbandon: at the end, what is being settled waits for its answer, and all else is left to be
// reclaimed. It checks I13.
func TestAbandon(t *testing.T) {
	t.Parallel()
	f := newFlight()
	settled, decided := f.add("a"), f.add("b")
	f.decide(settled, ack, 0)
	f.decide(decided, ack, 0)
	settled.Settle(0, f.routes)
	f.Abandon()
	assert.Equal(t, wait.Never, decided.SettleAt())
	assert.Equal(t, []*Batch{decided}, f.Prune())
	f.EndSettle(settled, true, 0)
	assert.Equal(t, []*Batch{settled}, f.Prune())
}

// TestPanicOfAProbe: what a panic has left without a verdict, of a claim from a slot, is no longer counted as claimed
// from there, nor as hanging: else the slot would not be claimed from again. It checks I7.
func TestPanicOfAProbe(t *testing.T) {
	t.Parallel()
	f := newFlight()
	f.routes.Load([]message.ParkedRoute{{Slot: 1, Route: "t", Reason: "full"}}, 0, true)
	p, _, _ := f.routes.Next(0, 500, true)
	m := message.Message{ID: "m", Topic: "t"}
	c := Claim{Lease: (&Lease{}).Renew(0, time.Hour), Deadline: time.Hour, From: p.Route, IsProbe: true}
	c.Messages = []message.ClaimedMessage{{Message: m}, {Message: m}}
	f.routes.Claimed(p, c.Messages, false, 0)
	b := f.Add(c, 0)
	f.Hang(b, 0, f.routes.Hang(&m, 0, time.Now()))
	_, out, hung := p.Route.InFlight()
	require.Equal(t, []int{2, 1}, []int{out, hung})
	f.Fail(b, 0)
	require.Equal(t, []*Batch{b}, f.Prune())
	assert.Empty(t, f.Forget(b, 0))
	_, out, hung = p.Route.InFlight()
	assert.Equal(t, []int{0, 0}, []int{out, hung})
}

// What is decided waits for the rest of its batch, for a while.
func TestSettleAt(t *testing.T) {
	t.Parallel()
	f := newFlight()
	b := f.add("", "", "")
	assert.Equal(t, wait.Never, b.SettleAt())
	f.decide(b, ack, 0)
	assert.Equal(t, settleAfter, b.SettleAt())
	f.decide(b, release, 1)
	assert.Equal(t, giveBackAfter, b.SettleAt())
	f.decide(b, ack, 2)
	assert.Zero(t, b.SettleAt())
}

// It waits from when the first was decided that is not being settled.
func TestSettleAtOfParts(t *testing.T) {
	t.Parallel()
	f := newFlight()
	b := f.add("", "", "", "", "")
	decide := func(i int, now time.Duration) { f.Decide(b, i, message.Verdict{Verb: ack}, nil, now) }
	decide(0, time.Second)
	decide(1, 2*time.Second)
	assert.Equal(t, time.Second+settleAfter, b.SettleAt())
	b.Settle(2*time.Second, f.routes)
	decide(2, 3*time.Second)
	decide(3, 4*time.Second)
	f.EndSettle(b, true, 4*time.Second)
	assert.Equal(t, 3*time.Second+settleAfter, b.SettleAt())
}

// A claim whose settling has no answer is extended for as long as its patience.
func TestPatienceOfASettle(t *testing.T) {
	t.Parallel()
	f := newFlight()
	b := f.add("")
	f.decide(b, ack, 0)
	b.Settle(0, f.routes)
	retry := func(now time.Duration) []message.ClaimToken {
		f.RetrySettle(b, false, now, time.Minute, func(initial, limit time.Duration) wait.Backoff { return wait.Backoff{Initial: initial, Limit: limit} })
		return f.Tokens()
	}
	assert.Equal(t, []message.ClaimToken{b.Token}, retry(time.Minute))
	assert.Empty(t, retry(time.Minute+1))
}

// Those claims are extended that the request has listed and that had not lapsed before.
func TestExtend(t *testing.T) {
	t.Parallel()
	f := newFlight()
	ended, first, unlisted, last := f.add(""), f.add(""), f.add(""), f.add("")
	f.decide(ended, ack, 0)
	f.settle(ended)
	f.Prune()
	f.Extend([]message.ClaimToken{ended.Token, first.Token, last.Token}, time.Minute, 2*time.Hour)
	deadlines := func() []time.Duration { return []time.Duration{first.Deadline, unlisted.Deadline, last.Deadline} }
	extended := time.Minute + 2*time.Hour
	assert.Equal(t, []time.Duration{extended, time.Hour, extended}, deadlines())
	f.Extend(f.Tokens(), time.Hour, 2*time.Hour)
	assert.Equal(t, []time.Duration{3 * time.Hour, time.Hour, 3 * time.Hour}, deadlines(), "one has lapsed")
}

// TestOlderAnswers: the answer of a claim that was made before something came back says nothing of
// that, so no slot is claimed from before it is claimed again. It checks I15.
func TestOlderAnswers(t *testing.T) {
	t.Parallel()
	f := newFlight()
	b := f.add("a")
	f.BeginClaim()
	f.decide(b, release, 0)
	f.settle(b)
	f.Saw(&message.Claim{})
	f.EndClaim()
	assert.True(t, f.KeepsSlots())
	f.BeginClaim()
	f.Saw(&message.Claim{})
	f.EndClaim()
	assert.False(t, f.KeepsSlots())
}
