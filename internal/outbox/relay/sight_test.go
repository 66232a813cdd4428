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
		whole  bool
		floor  int64
	}
	rest := map[string]time.Duration{"others do it": longestRest}
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
			// Once more: what was committed beside the first look is below the floor.
			{second: 2.1, took: slow, number: 30, whole: true},
			{second: 2.2, number: 40, floor: 10},
			{second: 32, number: 50, floor: 40},
			{second: 32.2, took: time.Millisecond, number: 60, whole: true},
			{second: 32.3, took: time.Millisecond, number: 70, whole: true},
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
			s := sight{rest: rest[name]}
			start := time.Now()
			at := func(second float64) time.Time { return start.Add(time.Duration(second * float64(time.Second))) }
			for _, l := range looks {
				there := table.Floor{Number: l.number, UntilMs: 1000 + l.number}
				require.Equal(t, l.whole, s.isWhole(at(l.second)), "second %g", l.second)
				if !l.whole {
					require.Equal(t, table.Floor{Number: l.floor, UntilMs: 1000 + l.floor}, s.after(at(l.second), there), "second %g", l.second)
				} else if s.looked(at(l.second), l.took, defaultCheapLook) && !s.isSlow() {
					s.note(at(l.second), there)
				}
				if l.hurry > 0 {
					s.hurry(at(l.hurry))
				}
			}
		})
	}
}

// after is the floor of a look at what is new, and then what that has seen is noted.
func (s *sight) after(now time.Time, there table.Floor) table.Floor {
	floor := s.floor(now)
	s.note(now, there)
	return floor
}

// TestEveryLaneLooksInTime: however seldom the relay polls, each lane looks at everything
// soon after a slow look.
func TestEveryLaneLooksInTime(t *testing.T) {
	t.Parallel()
	const took = 150 * time.Millisecond // and so three seconds between looks at everything
	for poll, idle := range map[time.Duration]struct{ cheap, slow, late []time.Duration }{
		time.Hour: {
			cheap: []time.Duration{time.Hour, time.Hour, time.Hour},
			slow:  []time.Duration{wait.Rest(took), wait.Rest(took), wait.Rest(took)},
			late:  []time.Duration{0, idleLane, idleLane},
		},
		200 * time.Millisecond: {
			cheap: []time.Duration{200 * time.Millisecond, idleLane, idleLane},
			slow:  []time.Duration{200 * time.Millisecond, idleLane, idleLane},
			late:  []time.Duration{0, idleLane, idleLane},
		},
	} {
		r := &Relay{config: Config{Poll: poll, Lanes: 3}}
		for number := range 3 {
			l, now := newLane(r, number), time.Now()
			require.Equal(t, idle.cheap[number], l.idle(now), "lane %d, poll %s", number, poll)
			require.True(t, l.sight.looked(now, took, defaultCheapLook))
			l.sight.note(now, table.Floor{})
			require.Equal(t, idle.slow[number], l.idle(now), "lane %d, poll %s", number, poll)
			require.Equal(t, idle.late[number], l.idle(now.Add(time.Minute)), "lane %d, poll %s", number, poll)
		}
	}
}
