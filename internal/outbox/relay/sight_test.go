package relay

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestSight: what a lane looks at, look by look. Numbers are those of the rows that are
// there at that second.
func TestSight(t *testing.T) {
	t.Parallel()
	const slow = 100 * time.Millisecond // and so two seconds between looks at everything
	type look struct {
		second float64
		took   time.Duration // of a look at everything
		number int64
		hurry  float64 // 0: no row had to wait
		cheap  bool    // another lane has found it cheap just before
		whole  bool
		floor  int64
	}
	leaves := map[string]bool{"others do it": true, "others find it cheap": true, "others shall": true}
	for name, looks := range map[string][]look{
		"cheap": {
			{second: 0, took: time.Millisecond, number: 1, whole: true},
			{second: 0.2, took: 10 * time.Millisecond, number: 2, whole: true},
			{second: 0.4, number: 3, whole: true},
		},
		"slow": {
			{second: 0, took: slow, number: 10, whole: true},
			{second: 0.2, number: 20, floor: 10},
			{second: 1.9, number: 30, floor: 10},
			{second: 2.1, took: slow, number: 40, whole: true},
			{second: 2.2, number: 50, floor: 10},
			{second: 3.3, number: 60, floor: 10},
			{second: 4.2, took: slow, number: 70, whole: true},
			// What was there three seconds before is the floor.
			{second: 4.8, number: 80, floor: 10},
			{second: 4.95, number: 90, floor: 30},
			{second: 6, number: 100, floor: 30},
			{second: 6.3, number: 110, took: slow, whole: true},
			{second: 6.4, number: 120, floor: 60},
		},
		"cheap again": {
			{second: 0, took: slow, number: 10, whole: true},
			{second: 1, number: 20, floor: 10},
			{second: 2, took: time.Millisecond, number: 30, whole: true},
			{second: 2.1, took: slow, number: 40, whole: true},
			{second: 2.2, number: 50, floor: 40},
		},
		"the floor moves twice a second at the most": {
			{second: 0, took: 10 * slow, number: 10, whole: true},
			{second: 0.1, number: 20, floor: 10},
			{second: 0.4, number: 30, floor: 10},
			{second: 0.6, number: 40, floor: 10},
			{second: 3.4, number: 50, floor: 10},
			{second: 3.6, number: 60, floor: 40},
		},
		"at least twice a minute": {
			{second: 0, took: 10 * time.Second, number: 10, whole: true},
			{second: 1, number: 20, floor: 10},
			{second: 29, number: 30, floor: 20},
			{second: 31, number: 40, whole: true},
		},
		"others do it": {
			{second: 0, took: slow, number: 10, whole: true},
			{second: 1, number: 20, floor: 10},
			{second: 2.1, number: 30, floor: 10},
			{second: 3.5, number: 40, floor: 10},
			{second: 40, number: 50, floor: 40},
			{second: 4000, number: 60, floor: 50},
		},
		"others find it cheap": {
			{second: 0, took: slow, number: 10, whole: true},
			{second: 1, number: 20, floor: 10},
			{second: 2, took: time.Millisecond, number: 30, cheap: true, whole: true},
			{second: 2.2, took: slow, number: 40, whole: true},
			{second: 2.4, number: 50, floor: 40},
		},
		"others shall": {
			{second: 0, took: slow, number: 10, whole: true},
			{second: 1, number: 20, floor: 10, hurry: 6},
			{second: 7, number: 30, floor: 20},
		},
		"a row waits": {
			{second: 0, took: 10 * slow, number: 10, whole: true},
			{second: 1, number: 20, floor: 10, hurry: 5},
			{second: 4, number: 30, floor: 20, hurry: 9},
			{second: 5, number: 40, took: 10 * slow, whole: true},
			{second: 6, number: 50, floor: 20},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			others := &lookout{}
			s := sight{leaves: leaves[name], cheap: defaultCheapLook, shared: others}
			start := time.Now()
			at := func(second float64) time.Time { return start.Add(time.Duration(second * float64(time.Second))) }
			for _, l := range looks {
				there := table.Floor{Number: l.number, UntilMs: 1000 + l.number}
				if l.cheap {
					others.tell(at(l.second), true)
				}
				v := s.next(at(l.second))
				require.Equal(t, l.whole, v.whole, "second %g", l.second)
				if !l.whole {
					require.Equal(t, table.Floor{Number: l.floor, UntilMs: 1000 + l.floor}, v.floor, "second %g", l.second)
					s.note(at(l.second), there)
				} else if s.looked(at(l.second), l.took) && !s.isSlow() {
					s.note(at(l.second), there)
				}
				if l.hurry > 0 {
					s.hurry(at(l.hurry))
				}
			}
			_, by := others.read()
			require.Equal(t, name == "others shall", by.Equal(at(6)))
		})
	}
}

// TestALookThatDoesNotEnd: it is given more time, until it ends.
func TestALookThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	s, now := sight{cheap: defaultCheapLook, shared: &lookout{}}, time.Now()
	for _, within := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, mostPatience, mostPatience} {
		s.gaveUp()
		now = now.Add(within)
		require.True(t, s.looked(now, within))
		s.note(now, table.Floor{})
		require.False(t, s.next(now.Add(min(within, longestRest)-time.Second)).whole, "it takes half of the time at the most")
		require.Equal(t, &view{whole: true, within: min(2*within, mostPatience)}, s.next(now.Add(max(within, longestRest))))
	}
	s.reset()
	require.Equal(t, firstPatience, s.next(now).within)
}

// TestSomebodyLooksInTime: however seldom the relay polls, each lane but the first looks at
// everything soon after a slow look, and the first if there is no other.
func TestSomebodyLooksInTime(t *testing.T) {
	t.Parallel()
	const took = 150 * time.Millisecond // and so three seconds between looks at everything
	for _, c := range []struct {
		poll             time.Duration
		lanes, lane      int
		cheap, slow, due time.Duration
	}{
		{poll: time.Hour, lanes: 2, lane: 0, cheap: time.Hour, slow: time.Hour, due: time.Hour},
		{poll: time.Hour, lanes: 2, lane: 1, cheap: time.Hour, slow: wait.Rest(took), due: idleLane},
		{poll: time.Hour, lanes: 1, lane: 0, cheap: time.Hour, slow: wait.Rest(took)},
		{poll: 200 * time.Millisecond, lanes: 2, lane: 0, cheap: 200 * time.Millisecond, slow: 200 * time.Millisecond, due: 200 * time.Millisecond},
		{poll: 200 * time.Millisecond, lanes: 2, lane: 1, cheap: idleLane, slow: idleLane, due: idleLane},
		{poll: 200 * time.Millisecond, lanes: 1, lane: 0, cheap: 200 * time.Millisecond, slow: 200 * time.Millisecond},
	} {
		l, now := newLane(&Config{Poll: c.poll, Lanes: c.lanes, cheapLook: defaultCheapLook}, nil, c.lane, &lookout{}), time.Now()
		require.Equal(t, c.cheap, l.idle(now), "%+v", c)
		require.True(t, l.sight.looked(now, took))
		l.sight.note(now, table.Floor{})
		require.Equal(t, c.slow, l.idle(now), "%+v", c)
		require.Equal(t, c.due, l.idle(now.Add(time.Minute)), "%+v", c)
	}
}

// TestWishIsFulfilled by a look that began after it, and by no earlier one.
func TestWishIsFulfilled(t *testing.T) {
	t.Parallel()
	o, by := &lookout{}, time.Unix(1<<30, 0)
	o.wish(by)
	o.tell(by.Add(-1), false)
	_, left := o.read()
	require.Equal(t, by, left)
	o.tell(by.Add(1), false)
	_, left = o.read()
	require.Zero(t, left)
}
