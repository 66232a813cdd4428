package routes

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/poller/rate"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// newTable is one of so many slots, in which a message's route is its topic.
func newTable(slots int) *Table {
	now := func() time.Duration { return 0 }
	sayNow := func(string) bool { return true }
	log := slog.New(slog.DiscardHandler)
	return New(Config{
		Log: log, Slots: slots, SayNow: sayNow, Suspects: &Suspects{},
		Quota:   rate.New(rate.Limits{}, nil, 1, now, log, sayNow).Quota(0, func() {}),
		Name:    func(m *message.Message) sinks.Route { return sinks.Route(m.Topic) },
		Backoff: func(initial, limit time.Duration) wait.Backoff { return wait.Backoff{Initial: initial, Limit: limit} },
	})
}

func of(topic string) *message.Message { return &message.Message{Topic: topic} }

// TestPatienceChanges: what was given up is probed again under another patience.
func TestPatienceChanges(t *testing.T) {
	t.Parallel()
	rs := newTable(9)
	rs.Follow(time.Hour, false)
	began, cause := time.Now(), sinks.Failed(sinks.Unavailable, sinks.ReasonTopicMissing, nil)
	after := func(missing time.Duration) state { return rs.Fail(of("t"), cause, 0, began.Add(missing)).state }
	assert.Equal(t, down, after(0))
	assert.Equal(t, givenUp, after(61*time.Minute))
	rs.Follow(2*time.Hour, false)
	assert.Equal(t, down, rs.byName["t"].state)
	assert.Equal(t, down, after(119*time.Minute))
	assert.Equal(t, givenUp, after(121*time.Minute))
}

// TestLostSince: a route of which a failover has lost since when it is closed has all its patience.
func TestLostSince(t *testing.T) {
	t.Parallel()
	rs := newTable(9)
	rs.Follow(time.Hour, false)
	rs.Load([]message.ParkedRoute{{Slot: 1}}, 0, true)
	p, _, _ := rs.Next(0, 500, true)
	rs.Claimed(p, []message.ClaimedMessage{{Message: *of("t")}}, false, 0)
	began, cause := time.Now(), sinks.Failed(sinks.Unavailable, sinks.ReasonTopicMissing, nil)
	assert.Equal(t, down, rs.Fail(of("t"), cause, 0, began).state)
	assert.Equal(t, givenUp, rs.Fail(of("t"), cause, 0, began.Add(61*time.Minute)).state)
}

// TestSuspectsAreShared: what one shard has found to hang, another parks when it claims it, and no more once somebody
// has had an answer. Else each shard would fill the window with its messages once more (I8).
func TestSuspectsAreShared(t *testing.T) {
	t.Parallel()
	finds, hears := newTable(9), newTable(9)
	hears.Suspects = finds.Suspects
	messages := []message.ClaimedMessage{{Message: *of("hangs")}, {Message: *of("well")}}
	assert.Empty(t, hears.ParkAll(messages, 0, time.Now()))
	r := finds.Hang(of("hangs"), 0, time.Now())
	parked := hears.ParkAll(messages, time.Second, time.Now())
	if assert.Len(t, parked, 1) {
		assert.Zero(t, parked[0].Index)
	}
	finds.HangEnded(r, true, 2*time.Second)
	last := newTable(9)
	last.Suspects = finds.Suspects
	assert.Empty(t, last.ParkAll(messages, 2*time.Second, time.Now()))
}

// TestRateInASharedSlot: what comes faster than the rate of its topic, and shares the slot of a route that has just
// been opened, closes it again: else nobody would look for it there (I7), and the next of its Key would pass it (I15).
func TestRateInASharedSlot(t *testing.T) {
	t.Parallel()
	rs := newTable(1)
	limits := rate.Limits{Topics: map[string]int{"b": 1}}
	rs.Quota = rate.New(limits, nil, 1, func() time.Duration { return 0 }, rs.Log, rs.SayNow).Quota(0, func() {})
	rs.Follow(time.Hour, true)
	a := []message.ClaimedMessage{{Message: *of("a")}}
	r := rs.Fail(of("a"), sinks.Failed(sinks.Unavailable, sinks.ReasonFull, nil), 0, time.Now())
	rs.Parked(r)
	for range 2 { // A probe, and then the last of the slot.
		p, _, _ := rs.Next(time.Minute, 500, true)
		rs.Claimed(p, a, true, time.Minute)
		rs.Succeed(r)
	}
	assert.Equal(t, open, r.state)
	assert.Len(t, rs.ParkAll([]message.ClaimedMessage{{Message: *of("b")}}, time.Minute, time.Now()), 1)
	assert.True(t, rs.IsClosed(of("b")))
}

// TestSharedSlot: routes that have no slot of their own are closed with those whose slot they
// share, until it is empty: else what comes due would pass what is parked (I15).
func TestSharedSlot(t *testing.T) {
	t.Parallel()
	rs := newTable(2)
	full := sinks.Failed(sinks.Unavailable, sinks.ReasonFull, nil)
	first, last := rs.Fail(of("a"), full, 0, time.Time{}), rs.Fail(of("b"), full, 0, time.Time{})
	assert.Equal(t, []int{1, 2}, []int{first.Slot(), last.Slot()})
	assert.Same(t, last, rs.Fail(of("c"), full, 0, time.Time{}))
	assert.True(t, rs.IsClosed(of("c")))
	assert.Same(t, last, rs.Park("", of("c")))
	assert.Nil(t, rs.Park("", of("d")), "nothing of it is parked")

	// Another holder of the shard does not know whose messages they are.
	parked := []message.ParkedRoute{first.info(), last.info()}
	rs = newTable(2)
	rs.Load(parked, 0, true)
	for _, topic := range []string{"b", "c", "d"} {
		assert.True(t, rs.IsClosed(of(topic)), topic)
	}
	p, _, _ := rs.Next(0, 500, true)
	assert.Equal(t, 1, p.Route.Slot())
	rs.Claimed(p, nil, true, 0)
	p, _, _ = rs.Next(0, 500, true)
	assert.Equal(t, 2, p.Route.Slot())
	rs.Claimed(p, []message.ClaimedMessage{{Message: *of("c")}}, false, 0)
	rs.Succeed(p.Route)
	rs.TakeBack(p.Route, 1)
	p, _, _ = rs.Next(0, 500, true)
	rs.Claimed(p, nil, true, 0)
	for _, topic := range []string{"b", "c", "d"} {
		assert.False(t, rs.IsClosed(of(topic)), topic)
	}
	assert.Equal(t, []int{1, 2}, rs.TakeFree())
	assert.Empty(t, rs.All())
}

// TestManySharingRoutes: their names are bounded.
func TestManySharingRoutes(t *testing.T) {
	t.Parallel()
	rs := newTable(1)
	full := sinks.Failed(sinks.Unavailable, sinks.ReasonFull, nil)
	name := func(i int) *message.Message { return of("t" + time.Duration(i).String()) }
	for i := range 2 * maxSharing {
		rs.Fail(name(i), full, 0, time.Time{})
	}
	assert.LessOrEqual(t, len(rs.byName), maxSharing+1)
	assert.True(t, rs.IsClosed(name(2*maxSharing-1)))
}

// TestHangKeepsClosed: a slot that is empty opens no route of which a message hangs.
func TestHangKeepsClosed(t *testing.T) {
	t.Parallel()
	rs := newTable(2)
	r := rs.Park("", of("t"))
	assert.Nil(t, r)
	rs.Load([]message.ParkedRoute{{Slot: 1, Route: "t", Reason: "full"}}, 0, true)
	p, _, _ := rs.Next(0, 500, true)
	rs.Claimed(p, []message.ClaimedMessage{{Message: *of("t")}}, false, 0)
	rs.Succeed(p.Route)
	rs.TakeBack(p.Route, 1)
	p, _, _ = rs.Next(0, 500, true)
	hung := rs.Hang(of("t"), 0, time.Time{})
	rs.HangEnded(hung, true, 0) // It is back.
	hung = rs.Hang(of("t"), 0, time.Time{})
	rs.Succeed(hung)
	rs.Claimed(p, nil, true, 0)
	assert.True(t, rs.IsClosed(of("t")))
	rs.HangEnded(hung, true, 0)
	p, _, _ = rs.Next(time.Minute, 500, true)
	rs.Claimed(p, nil, true, time.Minute)
	assert.False(t, rs.IsClosed(of("t")))
}

// TestLoadedSlots: those that this bridge does not have are left alone.
func TestLoadedSlots(t *testing.T) {
	t.Parallel()
	rs := newTable(2)
	rs.Load([]message.ParkedRoute{{Slot: 0, Route: "a"}, {Slot: 1, Route: "b"}, {Slot: 2, Route: "c"}, {Slot: 3, Route: "d"}}, 0, true)
	names := []string{}
	for _, r := range rs.All() {
		names = append(names, r.info().Route)
	}
	assert.Equal(t, []string{"b", "c"}, names)
}

// TestSlotsInTurn: of those that are ready, each has its turn.
func TestSlotsInTurn(t *testing.T) {
	t.Parallel()
	rs := newTable(3)
	parked := []message.ParkedRoute{{Slot: 1, Route: "a"}, {Slot: 2, Route: "b"}, {Slot: 3, Route: "c"}}
	rs.Load(parked, 0, true)
	turns := []int{}
	for range 5 {
		p, _, _ := rs.Next(0, 500, true)
		turns = append(turns, p.Route.Slot())
		rs.Claimed(p, []message.ClaimedMessage{{Message: *of(p.Route.info().Route)}}, false, 0)
		rs.Succeed(p.Route)
		rs.TakeBack(p.Route, 1)
	}
	assert.Equal(t, []int{1, 2, 3, 1, 2}, turns)
}

// TestBlocked: a slot that could be claimed from but for what is on its way into it says so, also before others
// that could be, or that have nothing to do.
func TestBlocked(t *testing.T) {
	t.Parallel()
	rs := newTable(3)
	rs.Load([]message.ParkedRoute{{Slot: 1, Route: "a"}, {Slot: 2, Route: "b"}}, 0, true)
	next := func() (slot int, blocked bool) {
		p, _, blocked := rs.Next(0, 500, true)
		if p != nil {
			slot = p.Route.Slot()
		}
		return slot, blocked
	}
	slot, blocked := next()
	assert.Equal(t, 1, slot)
	assert.False(t, blocked)
	a := rs.Park("", of("a"))
	slot, blocked = next()
	assert.Equal(t, 2, slot)
	assert.True(t, blocked)
	rs.Parked(a)
	slot, blocked = next()
	assert.Equal(t, 1, slot)
	assert.False(t, blocked)
}

// TestNamelessSlot: the first message of a slot of which a failover has lost the name tells it, and from then on
// all of that name go there.
func TestNamelessSlot(t *testing.T) {
	t.Parallel()
	rs := newTable(3)
	rs.Load([]message.ParkedRoute{{Slot: 1, Route: "a"}, {Slot: 2}}, 0, true)
	assert.False(t, rs.IsClosed(of("b")))
	p, _, _ := rs.Next(0, 500, true)
	assert.True(t, p.IsNameless)
	assert.Equal(t, 2, p.Route.Slot(), "it goes first")
	rs.Claimed(p, []message.ClaimedMessage{{Message: *of("b")}}, false, 0)
	assert.Same(t, p.Route, rs.Park("", of("b")))
	assert.False(t, rs.IsClosed(of("")))
}

// TestTopicOfASlot: a message of it tells whose pause and rate it is, where that is not the route's name.
func TestTopicOfASlot(t *testing.T) {
	t.Parallel()
	rs := newTable(3)
	rs.Name = func(m *message.Message) sinks.Route { return sinks.Route(m.Topic + "/0") }
	rs.Load([]message.ParkedRoute{{Slot: 1, Route: "t/0"}}, 0, true)
	p, _, _ := rs.Next(0, 500, true)
	rs.Claimed(p, []message.ClaimedMessage{{Message: *of("t")}}, false, 0)
	rs.Succeed(p.Route)
	rs.TakeBack(p.Route, 1)
	p, _, _ = rs.Next(0, 500, true)
	assert.Equal(t, "t", p.Limited)
	rs.Pause(map[string]time.Time{"t": {}})
	p, _, _ = rs.Next(0, 500, true)
	assert.Nil(t, p)
}

// TestSuspects: what hangs in one shard is not tried in another one, for a while.
func TestSuspects(t *testing.T) {
	t.Parallel()
	rs, other := newTable(3), newTable(3)
	other.Suspects = rs.Suspects
	claim := []message.ClaimedMessage{{Message: *of("t")}}
	hung := rs.Hang(of("t"), 0, time.Time{})
	assert.Empty(t, other.ParkAll(claim, suspectFor, time.Time{}), "long ago")
	assert.Len(t, other.ParkAll(claim, suspectFor-1, time.Time{}), 1)
	assert.Empty(t, other.ParkAll([]message.ClaimedMessage{{Message: *of("u")}}, 0, time.Time{}))

	other = newTable(3)
	other.Suspects = rs.Suspects
	rs.HangEnded(hung, true, 0)
	assert.Empty(t, other.ParkAll(claim, 0, time.Time{}), "it has answered")
}

// TestRatesAreAdded: a rate holds from the moment on in which the table is told of it, though no route was ever closed.
func TestRatesAreAdded(t *testing.T) {
	t.Parallel()
	rs := newTable(1)
	limits := rate.Limits{Topics: map[string]int{"t": 1}}
	rs.Quota = rate.New(limits, nil, 1, func() time.Duration { return 0 }, rs.Log, rs.SayNow).Quota(0, func() {})
	rs.Follow(time.Hour, true)
	assert.Len(t, rs.ParkAll([]message.ClaimedMessage{{Message: *of("t")}}, 0, time.Time{}), 1)
}

// BenchmarkNext is what a turn costs beside as many closed routes as there are slots.
func BenchmarkNext(b *testing.B) {
	rs := newTable(message.MaxSlot)
	for i := range message.MaxSlot {
		rs.Fail(of("t"+time.Duration(i).String()), sinks.Failed(sinks.Unavailable, sinks.ReasonFull, nil), 0, time.Time{})
	}
	for b.Loop() {
		rs.Next(time.Minute, 500, true)
	}
}
