package store_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/clock"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// clockScene is a scene whose Redis has a clock that can be set.
func clockScene(t *testing.T) (*scene, *testenv.Clock) {
	server, clock := testenv.StartRedisWithClock(t)
	return newSceneOn(t, server.URL()), clock
}

// cancelMarked cancels what a further run has made.
func (s *scene) cancelMarked() {
	s.Helper()
	require.Equal(s, store.DoneMaybePublished, cancel(s, s.near, "x"))
}

// TestClockSetForward sets Redis' clock forward between two runs of a call, so that what the
// first one has left is gone: the second does nothing, and the call says that it cannot tell.
func TestClockSetForward(t *testing.T) {
	t.Parallel()
	calls := map[string]struct {
		before   func(*scene)
		call     func(*scene, *store.Answer) func()
		executed string
		between  func(*scene)
		found    bool // after it
	}{
		"cancel":     {before: func(s *scene) { s.create(later())() }, call: (*scene).cancels, executed: "cancelled"},
		"reschedule": {before: func(s *scene) { s.create(later())() }, call: reschedulesLater, executed: "rescheduled", between: (*scene).cancel},
		"schedule":   {call: schedulesLater, executed: "scheduled", between: (*scene).cancel},
		"replace":    {call: replacesLater, executed: "scheduled", between: (*scene).cancel},
		"cancel, and another's": {
			before: func(s *scene) { s.create(later())() }, call: (*scene).cancels, executed: "cancelled",
			between: func(s *scene) { s.create(later())() }, found: true,
		},
	}
	for name, c := range calls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, clock := clockScene(t)
			if c.before != nil {
				c.before(s)
			}
			var answer store.Answer
			s.lost(c.call(s, &answer), counted(c.executed, 1), func() {
				clock.Set(2 * time.Minute)
				if c.between != nil {
					c.between(s)
				}
				clock.Set(4 * time.Minute)
				s.claim() // It forgets what has expired.
			})
			var unknown *store.UnknownError
			require.ErrorAs(t, answer.Err, &unknown, "%v", answer)
			require.ErrorIs(t, unknown.Call.Again(t.Context()), store.ErrForgotten)
			s.found(c.found)
			sound(t, s.rdb, s.near)
		})
	}
}

func schedulesLater(s *scene, answer *store.Answer) func()   { return s.schedules(answer, later()) }
func replacesLater(s *scene, answer *store.Answer) func()    { return s.replaces(answer, later()) }
func reschedulesLater(s *scene, answer *store.Answer) func() { return s.reschedules(answer, later()) }

// TestClockSetBack sets Redis' clock back while the first run of a call is on its way: it
// arrives when the call has its answer, and changes nothing.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	back := func(clock *testenv.Clock) func() { return func() { clock.Set(-5 * time.Minute) } }
	t.Run("cancel", func(t *testing.T) {
		t.Parallel()
		s, clock := clockScene(t)
		s.create(later())()
		var answer store.Answer
		s.late(s.cancels(&answer), back(clock), s.create(later()))
		answered(t, store.Done, answer)
		s.found(true)
	})
	t.Run("reschedule", func(t *testing.T) {
		t.Parallel()
		s, clock := clockScene(t)
		s.create(later())()
		var answer store.Answer
		s.late(s.reschedules(&answer, past()), back(clock), steps(s.cancel, s.create(later())))
		answered(t, store.Done, answer)
	})
	t.Run("schedule", func(t *testing.T) {
		t.Parallel()
		s, clock := clockScene(t)
		var answer store.Answer
		s.late(s.schedules(&answer, later()), back(clock), s.cancelMarked)
		answered(t, store.Created, answer)
		s.found(false)
	})
	t.Run("replace", func(t *testing.T) {
		t.Parallel()
		s, clock := clockScene(t)
		var answer store.Answer
		s.late(s.replaces(&answer, later()), back(clock), steps(s.cancelMarked, s.create(later())))
		answered(t, store.Created, answer)
	})
	// What came after the call began does not count as what was there before.
	t.Run("schedule meets another's", func(t *testing.T) {
		t.Parallel()
		s, clock := clockScene(t)
		var answer store.Answer
		s.lost(s.schedules(&answer, past()), counted("scheduled", 1), func() {
			s.publish()
			clock.Set(-5 * time.Minute)
			s.create(later())()
		})
		require.ErrorIs(t, answer.Err, store.ErrUnknown, "%v", answer)
	})
}

// TestClockSetToAndFro: whose reading of Redis' clock is ahead of it is refused once, and learns.
func TestClockSetToAndFro(t *testing.T) {
	t.Parallel()
	s, clock := clockScene(t)
	for _, ahead := range []time.Duration{0, -time.Hour, -3 * time.Second, -2 * time.Hour, time.Hour, 0} {
		clock.Set(ahead)
		s.create(later())()
		s.cancel()
	}
}

// TestTombstonesOutliveASetClock sets Redis' clock forward and back between two runs of a call, while a poller
// that has long known the clock claims: what the first run has left stays, and the second one finds it.
func TestTombstonesOutliveASetClock(t *testing.T) {
	t.Parallel()
	s, clock := clockScene(t)
	s.create(later())()
	poller := s.near.SteadyShard(0)
	claim := func() {
		_, err := poller.Claim(s.Context(), s.bridge.request(0))
		require.NoError(s, err)
	}
	var answer store.Answer
	s.lost(s.cancels(&answer), counted("cancelled", 1), func() {
		clock.Set(2 * store.Tombstone)
		claim() // It learns of the new time,
		claim() // by which the tombstone has expired.
		clock.Set(0)
	})
	answered(t, store.Done, answer)
}

// redisModel is what the script cancel does, with one identity.
type redisModel struct {
	skew    time.Duration
	message string           // whose
	gone    map[string]int64 // token -> expiry_ms
	taken   []string         // by the cancel
}

func (m *redisModel) nowMs() int64 { return time.Now().Add(m.skew).UnixMilli() }

// cancel is one run.
func (m *redisModel) cancel(token string, isSecond bool, fromMs, toMs int64) (status int64, code store.Code) {
	if now := m.nowMs(); now < fromMs || now > toMs {
		return 2, 0
	}
	switch _, isGone := m.gone[token]; {
	case isSecond && isGone:
		return 0, store.Done
	case m.message == "":
		return 0, store.NotFound
	}
	m.taken = append(m.taken, m.message)
	m.gone[token], m.message = m.nowMs()+store.Tombstone.Milliseconds(), ""
	return 0, store.Done
}

// TestCallerClock plays stories of one cancel whose runs are lost, or late by 10 s at the most, while
// Redis' clock is set once: forward by anything, back by more than a run may be late. The call
// takes one message at the most, none after its answer, and says NotFound only if it has taken none.
func TestCallerClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(10_000) {
			if cancelWithClock(t, rand.New(rand.NewPCG(seed, 0))); t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	})
}

func cancelWithClock(t *testing.T, random *rand.Rand) {
	const late, timeout, troubles = 10 * time.Second, 2 * time.Second, 12
	chance := func() bool { return random.IntN(2) == 0 }
	seconds := func(from, to int) time.Duration { return time.Duration(from+random.IntN(to-from+1)) * time.Second }
	m := &redisModel{message: "first", gone: map[string]int64{}}
	var server clock.Clock
	server.Observe(m.nowMs(), time.Now())
	time.Sleep(seconds(0, 9)) //nolint:forbidigo // the bubble's clock
	sets := []time.Duration{0, time.Second, 20 * time.Second, 59 * time.Second, time.Minute, time.Hour, -15 * time.Second, -time.Minute, -time.Hour}
	set := sets[random.IntN(len(sets))]
	layout, token, isOver := &store.Layout{Shards: 1, Epoch: "1-life"}, "m-0", false
	type lying struct {
		at       time.Time
		isSecond bool
		from, to int64
	}
	var way []lying
	// meanwhile is what others do until then, and what lies on the way.
	meanwhile := func(until time.Time) {
		for {
			next := -1
			for i, l := range way {
				if !l.at.After(until) && (next < 0 || l.at.Before(way[next].at)) {
					next = i
				}
			}
			at := until
			if next >= 0 {
				at = way[next].at
			}
			time.Sleep(time.Until(at)) //nolint:forbidigo // the bubble's clock
			if chance() && set != 0 {
				m.skew, set = set, 0
			}
			if chance() {
				for token, until := range m.gone {
					if until <= m.nowMs() {
						delete(m.gone, token)
					}
				}
			}
			if m.message == "" && chance() {
				m.message = "another"
			}
			if next < 0 {
				return
			}
			before := len(m.taken)
			m.cancel(token, way[next].isSecond, way[next].from, way[next].to)
			require.False(t, isOver && len(m.taken) > before, "a run takes effect after its call was answered")
			way = slices.Delete(way, next, next+1)
		}
	}
	c := store.NewCaller(1, 1, time.Now())
	passes, deadline := 0, time.Now().Add(seconds(3, 59))
	var answer *store.Answer
	for more := true; more && time.Now().Before(deadline); passes++ {
		require.Less(t, passes, 2*troubles, "it turns without end")
		if !server.IsUsable() {
			server.Observe(m.nowMs(), time.Now())
		}
		for _, r := range c.Plan(layout, time.Now()) {
			from, to := r.Bound(&server, min(timeout, time.Until(deadline)))
			fate := random.IntN(4)
			if passes >= troubles {
				fate = 3
			}
			switch fate {
			case 0: // Lost.
				r.Hear(errors.New("connection reset"))
			case 1: // Its answer is.
				m.cancel(token, r.IsSecond(), from, to)
				r.Hear(errors.New("connection reset"))
			case 2: // It comes late.
				way = append(way, lying{time.Now().Add(time.Duration(random.Int64N(int64(late)))), r.IsSecond(), from, to})
				r.Hear(errors.New("connection reset"))
			default:
				status, code := m.cancel(token, r.IsSecond(), from, to)
				r.Hear(nil, status, m.nowMs(), int64(code), int64(0))
			}
		}
		answer = c.Answers()[token]
		var pause time.Duration
		pause, more = c.Next(time.Now())
		isOver = !more
		meanwhile(time.Now().Add(pause + time.Millisecond))
	}
	if answer == nil {
		meanwhile(c.Settled())
	}
	isOver = true
	if answer != nil && answer.Err == nil && answer.Code == store.NotFound {
		require.Empty(t, m.taken, "not found, and yet it was done")
	}
	meanwhile(time.Now().Add(2 * late))
	require.LessOrEqual(t, len(m.taken), 1, "one cancel takes %v", m.taken)
}
