package poller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/poller/batch"
	"github.com/delaybridge/delaybridge/internal/poller/rate"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// machine is a shard that is told what happens by hand, at instants of the test's own: it notes
// what the shard has done for it.
type machine struct {
	*Shard
	t         *testing.T
	now       time.Duration
	claims    []message.ClaimRequest
	published []string
	calls     map[string]func(sinks.Outcome) // by message
	settles   []settleCall
	loads     int
	granted   uint64 // the number of the last claim that was
}

type settleCall struct {
	batch      *batch.Batch
	settlement message.Settlement
}

func (m *machine) Claim(r message.ClaimRequest) { m.claims = append(m.claims, r) }
func (m *machine) Reclaim(message.Reclaim)      {}
func (m *machine) Parked()                      { m.loads++ }
func (m *machine) NoLayout()                    {}
func (m *machine) Confirm(*batch.Batch)         {}
func (m *machine) Topics(*batch.Batch, []int)   {}
func (m *machine) Settle(b *batch.Batch, s message.Settlement) {
	m.settles = append(m.settles, settleCall{b, s})
}

// Publish implements [Calls].
func (m *machine) Publish(c *batch.Publication, messages []message.Message) {
	left := len(messages)
	for i := range messages {
		m.published = append(m.published, messages[i].ID)
		m.calls[messages[i].ID] = func(o sinks.Outcome) {
			c.Outcomes.Report(i, o)
			if left--; left == 0 {
				c.Return(nil)
			}
		}
	}
}

// newMachine is one that holds its shard, in which these routes have messages parked.
func newMachine(t *testing.T, parked ...string) *machine {
	t.Helper()
	q, err := newSimulated(Config{
		Queue: "q", Instance: "i", Shards: []int{0}, Store: func(int) Store { return nil }, Sink: Sink{Sink: simRoutes{}},
		Claims: Claims{Timeout: time.Minute, Lease: 5 * time.Second},
	}, func() float64 { return 0.5 })
	require.NoError(t, err)
	m := &machine{t: t, now: simUptime, calls: map[string]func(sinks.Outcome){}}
	m.Shard = NewShard(q, 0, 1, m, Wakes{Outcomes: make(chan struct{}, 1), Room: func() {}, Rates: func() {}})
	due := m.redisNow()
	m.answer(nil, &due)
	var routes []message.ParkedRoute
	for i, name := range parked {
		routes = append(routes, message.ParkedRoute{Slot: i + 1, Route: name, Reason: "full"})
	}
	m.step()
	m.Loaded(m.now, routes, nil)
	return m
}

func (m *machine) step() { m.Step(m.now) }

// after has time pass, and a turn taken.
func (m *machine) after(d time.Duration) {
	m.now += d
	m.step()
}

// redisNow is what Redis' clock says.
func (m *machine) redisNow() time.Time { return time.Unix(1_000_000, 0).Add(m.now) }

// claim is the request that is to be made now.
func (m *machine) claim() message.ClaimRequest {
	m.t.Helper()
	n := len(m.claims)
	m.step()
	require.Len(m.t, m.claims, n+1)
	return m.claims[n]
}

// answer has a request made, unless one is under way, and answered with messages; what waits next
// is due then, if anything.
func (m *machine) answer(messages []message.ClaimedMessage, next *time.Time) {
	m.t.Helper()
	if !m.IsWaiting() {
		m.claim()
	}
	claim := message.Claim{Now: m.redisNow(), Messages: messages, More: true, Last: m.granted}
	m.granted = m.claims[len(m.claims)-1].Token.Number
	if next != nil {
		claim.NextDue = *next
	}
	m.Claimed(m.now, claim, m.now, nil)
}

func (m *machine) message(id, topic string) message.ClaimedMessage {
	c := keyed(id, "k", m.redisNow())
	c.Topic = topic
	return c
}

// settle writes what is decided, and returns the verbs.
func (m *machine) settle() (verbs []message.Verb) {
	m.t.Helper()
	m.after(settleSoon)
	require.NotEmpty(m.t, m.settles)
	for _, s := range m.settles {
		for _, v := range s.settlement.Verdicts {
			verbs = append(verbs, v.Verb)
		}
		m.Settled(m.now, s.batch, false, nil)
	}
	m.settles = nil
	return verbs
}

const settleSoon = 150 * time.Millisecond

var sinkDown = sinks.FailedWhole(sinks.Unavailable, sinks.ReasonConnection, errBroker)

// A claim that has no answer yet may have been made before an earlier message of the Key was
// back: what it has taken must not pass that one (I15).
func TestClaimThatCrossesAReturn(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	due := m.redisNow()
	m.answer([]message.ClaimedMessage{m.message("m1", "t")}, &due)
	require.Positive(t, m.claim().Max)
	m.calls["m1"](sinkDown)
	require.Equal(t, []message.Verb{message.VerbRelease}, m.settle())
	m.answer([]message.ClaimedMessage{m.message("m2", "t")}, &due)
	require.Equal(t, []message.Verb{message.VerbRelease}, m.settle())
	assert.Equal(t, []string{"m1"}, m.published)
}

// Nothing is claimed while messages are on their way back: the parts of a Key could hold each
// other up for ever.
func TestReturnsAreAwaited(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	due := m.redisNow()
	require.Positive(t, m.claim().Max)
	m.now += 61 * time.Second // Too late to publish any of it.
	m.answer([]message.ClaimedMessage{m.message("m1", "t")}, &due)
	for range 9 {
		m.after(time.Millisecond)
		if n := len(m.claims); m.IsWaiting() {
			require.Zero(t, m.claims[n-1].Max)
			m.answer(nil, &due)
		}
	}
	require.Equal(t, []message.Verb{message.VerbRelease}, m.settle())
	m.after(time.Millisecond)
	assert.Positive(t, m.claims[len(m.claims)-1].Max)
	assert.Empty(t, m.published)
}

// What a claim has taken from a slot goes back to it where a message that went back meanwhile is
// due, which may belong in front of it; and no slot is claimed from until that one was claimed.
// Then they are, though others are due all the time.
func TestSlotsWaitForReturns(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "t")
	due := m.redisNow()
	first := m.message("m1", "u")
	for m.claim().Slot == 0 { // In turn: what is due, and the slot.
		m.answer([]message.ClaimedMessage{first}, &due)
	}
	require.Equal(t, 1, m.claims[len(m.claims)-1].Slot)
	require.Equal(t, []string{"m1"}, m.published)
	m.calls["m1"](sinkDown)
	require.Equal(t, []message.Verb{message.VerbRelease}, m.settle())
	m.answer([]message.ClaimedMessage{m.message("p1", "t")}, &due)
	require.Equal(t, []message.Verb{message.VerbPark}, m.settle())
	require.Equal(t, []string{"m1"}, m.published)

	slots := func() (n int) {
		for range 20 {
			m.after(time.Second)
			if !m.IsWaiting() {
				continue
			}
			if m.claims[len(m.claims)-1].Slot == 1 {
				n++
			}
			m.answer(nil, &due)
		}
		return n
	}
	require.Zero(t, slots())
	due = m.redisNow() // m1 was claimed, and another is due.
	m.answer([]message.ClaimedMessage{m.message("m1", "u")}, &due)
	m.calls["m1"](acked)
	m.settle()
	assert.Positive(t, slots())
}

// What waits for an earlier message of its Key is not published after the lease.
func TestNothingIsPublishedAfterTheLease(t *testing.T) {
	t.Parallel()
	for _, late := range []time.Duration{0, 6 * time.Second} {
		t.Run(fmt.Sprint(late), func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			due := m.redisNow()
			m.answer([]message.ClaimedMessage{m.message("m1", "t")}, &due)
			m.answer([]message.ClaimedMessage{m.message("m2", "t")}, nil)
			inWindow := func() int { n, _ := m.queue.config.Sink.Window.InFlight(); return n }
			assert.Equal(t, 1, inWindow(), "what waits takes no room")
			m.now += late // The renewal is under way, and not answered.
			m.calls["m1"](acked)
			m.step()
			if late == 0 {
				assert.Equal(t, []string{"m1", "m2"}, m.published)
				assert.Equal(t, 1, inWindow())
			} else {
				assert.Equal(t, []string{"m1"}, m.published)
				assert.Equal(t, []message.Verb{message.VerbAck, message.VerbRelease}, m.settle())
			}
		})
	}
}

// A message that the broker has refused by itself is claimed again when it is due, though the
// store has told of nothing that waits.
func TestRetriesAreClaimedInTime(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.answer([]message.ClaimedMessage{m.message("m1", "t")}, nil)
	m.calls["m1"](sinks.Failed(sinks.Retryable, sinks.ReasonRefused, errBroker))
	require.Equal(t, []message.Verb{message.VerbRetry}, m.settle())
	m.after(time.Second - time.Millisecond)
	require.False(t, m.IsWaiting())
	m.after(time.Millisecond)
	require.True(t, m.IsWaiting())
	assert.Positive(t, m.claims[len(m.claims)-1].Max)
}

// So is one that goes back.
func TestReturnsAreClaimedAtOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	require.Positive(t, m.claim().Max)
	m.now += 61 * time.Second // Too late to publish any of it.
	m.answer([]message.ClaimedMessage{m.message("m1", "t")}, nil)
	require.Equal(t, []message.Verb{message.VerbRelease}, m.settle())
	if m.IsWaiting() { // The lease was renewed meanwhile.
		m.answer(nil, nil)
	}
	assert.Positive(t, m.claim().Max)
}

// room is how many messages of the window another shard may have.
func (m *machine) room() int {
	share := m.queue.config.Sink.Window.Join("other", func() {})
	defer share.Leave()
	messages, _, _ := share.Reserve(1<<20, false)
	return messages
}

// TestRoomOfAClaimWithoutAnAnswer: a Redis that hangs does not keep the sink's window from other shards (I8).
func TestRoomOfAClaimWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	most := m.room()
	next, _ := m.Step(m.now)
	require.Positive(t, m.claims[len(m.claims)-1].Max)
	require.Less(t, m.room(), most)
	require.LessOrEqual(t, next, m.now+reservedFor)
	m.now = next
	m.step()
	require.Equal(t, most, m.room())
}

// TestRoomThatIsNotAskedFor: nor does a shard that has waited for room, and has nothing to claim any more.
func TestRoomThatIsNotAskedFor(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	most := m.room()
	other := m.queue.config.Sink.Window.Join("other", func() {})
	other.Hold(most, 1<<20, true)
	m.turn.reserve(most, m.now)
	require.True(t, m.turn.isCrowded)
	other.Leave()
	m.Woken(m.now)
	m.turn.hold(m.now+reservedFor, m.flight.Load())
	require.Equal(t, most, m.room())
}

// TestEndWhileAClaimIsAsked: a shard whose calls are cut off while a claim has no answer ends once the sink has
// answered, though what it had in flight is lost: nobody asks for the claim again. It checks I13.
func TestEndWhileAClaimIsAsked(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	due := m.redisNow()
	m.answer([]message.ClaimedMessage{{Message: message.Message{ID: "a", Topic: "t", DueAt: due}}}, &due)
	m.claim()
	m.End()
	m.Claimed(m.now, message.Claim{}, m.now, errors.New("it was cut off"))
	m.calls["a"](sinks.Outcome{Class: sinks.Acknowledged})
	_, more := m.Step(m.now)
	assert.False(t, more)
}

// TestOutdatedAgain: the steps in which outdated numbers are left out begin anew once a claim was granted.
func TestOutdatedAgain(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	skipped := func() uint64 {
		m.now += time.Minute
		request := m.claim()
		m.Claimed(m.now, message.Claim{State: message.ClaimOutdated, Now: m.redisNow()}, m.now, nil)
		m.step()
		m.Loaded(m.now, nil, nil)
		return m.Number() - request.Token.Number
	}
	assert.Equal(t, []uint64{1, 2, 4}, []uint64{skipped(), skipped(), skipped()})
	m.answer(nil, nil)
	assert.EqualValues(t, 1, skipped())
}

// TestDueButNotTaken: a claim that finds something due and takes nothing is not made again at once.
func TestDueButNotTaken(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	due := m.redisNow()
	m.answer(nil, &due)
	n := len(m.claims)
	require.Positive(t, m.claims[n-1].Max)
	m.step()
	require.Len(t, m.claims, n)
	m.after(time.Millisecond)
	require.Len(t, m.claims, n+1)
}

// TestTakenByAFailover: a failover has taken the shard from us, so a claim that takes something is not asked for again before it
// is known what is parked: its messages would go to slots of before, which are forgotten then.
func TestTakenByAFailover(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	require.Positive(t, m.claim().Max)
	m.Claimed(m.now, message.Claim{Now: m.redisNow(), State: message.ClaimReclaimFirst}, m.now, nil)
	m.Reclaimed(m.now, 5, false, nil)
	require.Zero(t, m.claim().Max)
}

// TestParkedAcrossATakeover: a settle parks a message after the shard was lost and is ours again, while its claim is still valid, since
// the other instance has reclaimed nothing. So what is parked is loaded once more, whichever answer comes first.
func TestParkedAcrossATakeover(t *testing.T) {
	t.Parallel()
	for _, settledFirst := range []bool{false, true} {
		t.Run(fmt.Sprint("settled first ", settledFirst), func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			due := m.redisNow()
			m.answer([]message.ClaimedMessage{m.message("m1", "t")}, &due)
			m.calls["m1"](sinks.Failed(sinks.Unavailable, sinks.ReasonFull, errBroker))
			m.after(settleSoon)
			require.Len(t, m.settles, 1)
			m.after(3 * time.Second)
			require.True(t, m.IsWaiting())
			m.Claimed(m.now, message.Claim{Now: m.redisNow(), State: message.ClaimHeld, Holder: "other"}, m.now, nil)
			m.after(6 * time.Second)
			m.answer(nil, nil)
			m.step()
			before := m.loads
			if settledFirst {
				m.Settled(m.now, m.settles[0].batch, false, nil)
				m.Loaded(m.now, nil, nil)
			} else {
				m.Loaded(m.now, nil, nil)
				m.Settled(m.now, m.settles[0].batch, false, nil)
			}
			m.after(time.Millisecond)
			require.Equal(t, before+1, m.loads)
			m.Loaded(m.now, nil, nil)
			m.after(time.Millisecond)
			require.Equal(t, before+1, m.loads, "once")
		})
	}
}

// TestClaimOfAShardThatHasChanged: the claim that finds out that Redis has not what we have left there has taken messages whose
// predecessors may be in a slot that is not known, or in a claim that nobody works on. They go back until that is known (I15).
func TestClaimOfAShardThatHasChanged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		last   uint64
		strays []message.ClaimToken
	}{
		"another instance has held it, and parked m1":    {},
		"the answer was lost":                            {last: 2},
		"a failover has taken back that m1 was put back": {last: 1, strays: []message.ClaimToken{{Instance: "i", Number: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMachine(t)
			due := m.redisNow()
			m1, m2 := m.message("m1", "t"), m.message("m2", "t")
			require.Positive(t, m.claim().Max)
			m.granted = 2
			m.Claimed(m.now, message.Claim{Now: m.redisNow(), Messages: []message.ClaimedMessage{m2}, Last: c.last, Strays: c.strays, NextDue: due}, m.now, nil)
			if len(c.strays) > 0 {
				m.Reclaimed(m.now, 1, false, nil)
			}
			require.Equal(t, []message.Verb{message.VerbRelease}, m.settle())
			loads := m.loads
			m.step()
			require.Equal(t, loads+1, m.loads)
			if len(c.strays) > 0 {
				m.Loaded(m.now, nil, nil)
			} else {
				m.Loaded(m.now, []message.ParkedRoute{{Slot: 1, Route: "t", Reason: "full"}}, nil)
			}
			for range 9 {
				if len(m.published) > 0 {
					break
				}
				m.after(time.Millisecond)
				if !m.IsWaiting() {
					continue
				}
				switch r := m.claims[len(m.claims)-1]; {
				case r.Max == 0:
					m.answer(nil, &due)
				case len(c.strays) > 0:
					m.answer([]message.ClaimedMessage{m1, m2}, nil)
				case r.Slot == 0:
					m.answer([]message.ClaimedMessage{m2}, nil)
					require.Equal(t, []message.Verb{message.VerbPark}, m.settle())
				default:
					m.answer([]message.ClaimedMessage{m1}, nil)
				}
			}
			require.NotEmpty(t, m.published)
			assert.Equal(t, "m1", m.published[0])
		})
	}
}

// TestSlotOfAShardThatHasChanged: what such a claim has taken from a slot goes back to it.
func TestSlotOfAShardThatHasChanged(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "t")
	for m.claim().Slot == 0 { // In turn: what is due, and the slot.
		m.answer(nil, nil)
	}
	m.Claimed(m.now, message.Claim{Now: m.redisNow(), Messages: []message.ClaimedMessage{m.message("m2", "t")}}, m.now, nil)
	m.step()
	m.Loaded(m.now, nil, nil)
	require.Equal(t, []message.Verb{message.VerbPark}, m.settle())
	assert.Empty(t, m.published)
}

// TestBehindInAShardThatHasChanged: so does what such a claim has taken behind a message that is in flight.
func TestBehindInAShardThatHasChanged(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	due := m.redisNow()
	m.answer([]message.ClaimedMessage{m.message("m1", "t")}, &due)
	require.Positive(t, m.claim().Max)
	m.Claimed(m.now, message.Claim{Now: m.redisNow(), Messages: []message.ClaimedMessage{m.message("m3", "t")}, Last: 1, NextDue: due}, m.now, nil)
	m.calls["m1"](acked)
	m.settle()
	assert.Equal(t, []string{"m1"}, m.published)
}

// TestSeize: a lease is taken over that was not renewed for long, by our own clock; another holder's is another lease (I7).
func TestSeize(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	heldBy := func(holder string) (seized string) {
		m.now += 5 * time.Second // That is its lease.
		request := m.claim()
		m.Claimed(m.now, message.Claim{State: message.ClaimHeld, Holder: holder, HeldFor: time.Hour, Now: m.redisNow()}, m.now, nil)
		return request.Seize
	}
	assert.Equal(t, []string{"", "", "", "b", "b"}, []string{heldBy("a"), heldBy("b"), heldBy("b"), heldBy("b"), heldBy("b")})
}

// TestLeaveWithAClaim: the rates get back what a claim was allowed that has no answer at the end.
func TestLeaveWithAClaim(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	rates := m.queue.Rates()
	require.Positive(t, m.claim().Max)
	rates.Follow(rate.Limits{Messages: 1000})
	m.Leave()
	assert.Equal(t, 7, rates.Quota(1, func() {}).Allow("", 7, 0).Messages)
}
