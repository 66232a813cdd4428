package inlet

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/delaybridge/delaybridge/internal/operate"
)

// TestState: what is told last decides, the broker before all else, and what is not known is absent.
func TestState(t *testing.T) {
	t.Parallel()
	away := errors.New("connection refused")
	type seen struct{ state, cause, reason string }
	for name, c := range map[string]struct {
		happens func(*state)
		want    seen
	}{
		"before the first session": {func(*state) {}, seen{operate.InletDisconnected, operate.CauseBroker, ""}},
		"refused by the broker":    {func(s *state) { s.session(away) }, seen{operate.InletDisconnected, operate.CauseBroker, away.Error()}},
		"no Redis to begin with":   {func(s *state) { s.ready(away) }, seen{operate.InletDisconnected, operate.CauseRedis, away.Error()}},
		"connected":                {func(s *state) { s.ready(away); s.ready(nil); s.session(nil) }, seen{operate.InletConsuming, "", ""}},
		"replies away":             {func(s *state) { s.session(nil); s.waits(operate.CauseReplies, away) }, seen{operate.InletWaiting, operate.CauseReplies, away.Error()}},
		"Redis answers, replies are away": {
			func(s *state) { s.session(nil); s.waits(operate.CauseReplies, away); s.ready(nil) }, seen{operate.InletWaiting, operate.CauseReplies, away.Error()},
		},
		"back":               {func(s *state) { s.session(nil); s.waits(operate.CauseRedis, away); s.waits("", nil) }, seen{operate.InletConsuming, "", ""}},
		"waits, and is lost": {func(s *state) { s.session(nil); s.waits(operate.CauseRedis, away); s.session(errors.New("lost")) }, seen{operate.InletDisconnected, operate.CauseBroker, "lost"}},
		"waits, is lost, and connected again": {
			func(s *state) { s.session(nil); s.waits(operate.CauseRedis, away); s.session(away); s.session(nil) }, seen{operate.InletConsuming, "", ""},
		},
		"no Redis after the broker was away": {
			func(s *state) { s.session(errors.New("lost")); s.ready(away) }, seen{operate.InletDisconnected, operate.CauseRedis, away.Error()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newState(time.Now())
			c.happens(s)
			v := s.view(time.Now())
			assert.Equal(t, c.want, seen{v.State, v.Cause, v.Reason})
			assert.Nil(t, v.Behind)
			assert.Nil(t, v.Rate)
			v.WithoutBroker("no route", time.Now())
			assert.Equal(t, operate.InletDisconnected, v.State)
			if c.want.state != operate.InletDisconnected {
				assert.Equal(t, "no route", v.Reason)
			}
		})
	}
}

// TestBehindIsForgotten with the session: others may take what waits.
func TestBehindIsForgotten(t *testing.T) {
	t.Parallel()
	s := newState(time.Now())
	s.session(nil)
	s.behind(7)
	assert.Equal(t, int64(7), *s.view(time.Now()).Behind)
	s.session(errors.New("lost"))
	s.session(nil)
	assert.Nil(t, s.view(time.Now()).Behind)
}

// TestMeter: the rate is that of the last ten whole seconds.
func TestMeter(t *testing.T) {
	t.Parallel()
	var m meter
	for range 30 {
		m.add(500 * time.Millisecond)
	}
	assert.Nil(t, m.of(9*time.Second), "so long a time is not there yet")
	assert.InDelta(t, 3, m.of(10*time.Second).Done, 0)
	m.add(10 * time.Second)
	assert.InDelta(t, 3, m.of(10*time.Second).Done, 0, "this second is not over")
	assert.InDelta(t, 0.1, m.of(11*time.Second).Done, 0)
	assert.InDelta(t, 0.1, m.of(20*time.Second).Done, 0)
	assert.InDelta(t, 0, m.of(21*time.Second).Done, 0)
	m.add(time.Hour)
	assert.InDelta(t, 0.1, m.of(time.Hour+time.Second).Done, 0)
}
