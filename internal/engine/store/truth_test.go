package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// shortly is the deadline of calls that end while their first run is on its way;
// where the machine is too slow for that, they have twice as long, up to the last.
const (
	shortly = 300 * time.Millisecond
	lastly  = shortly << 7
)

// ending makes the ctx of a call that ends after some time.
type ending func(s *scene, after time.Duration) (context.Context, func())

// endEarly ends a call after some time, and then delivers its first run. It says
// whether that run was on its way.
func endEarly(t *testing.T, begin ending, options func(*redis.Options), do func(context.Context, *scene) store.Answer, after time.Duration) bool {
	t.Helper()
	s := newScene(t, options)
	s.create(later())()
	want := sound(t, s.rdb, s.near)
	s.ready()
	s.proxy.Blackhole(true)
	ctx, end := begin(s, after)
	defer end()
	err := do(ctx, s).Err
	isUnderWay := errors.Is(err, store.ErrUnknown)
	if !isUnderWay {
		require.ErrorIs(t, err, store.ErrUnavailable)
		require.Less(t, after, lastly, "%v", err)
		s.proxy.Blackhole(false)
	} else {
		s.deliver()
	}
	require.Equal(t, want, sound(t, s.rdb, s.near))
	return isUnderWay
}

// TestUnknownIsSettled ends calls while their first run is on its way: once
// ErrUnknown was answered, that run changes nothing any more, so that whoever
// looks is told the truth.
// It checks I11.
func TestUnknownIsSettled(t *testing.T) {
	t.Parallel()
	deadline := func(s *scene, after time.Duration) (context.Context, func()) {
		return context.WithTimeout(s.Context(), after)
	}
	cancelled := func(s *scene, after time.Duration) (context.Context, func()) {
		ctx, cancel := context.WithCancel(s.Context())
		timer := time.AfterFunc(after, cancel)
		return ctx, func() { timer.Stop(); cancel() }
	}
	cut := func(s *scene, after time.Duration) (context.Context, func()) {
		ctx, cancel := deadline(s, after)
		timer := time.AfterFunc(after/3, func() { _ = (*s.conn.Load()).Close() })
		return ctx, func() { timer.Stop(); cancel() }
	}
	asIs := func(*redis.Options) {}
	byContext := func(o *redis.Options) { o.ContextTimeoutEnabled = true }
	for name, c := range map[string]struct {
		begin   ending
		options func(*redis.Options)
	}{
		"deadline": {deadline, asIs}, "connection lost": {cut, asIs},
		"cancelled": {cancelled, asIs}, "cancelled with its connection": {cancelled, byContext},
	} {
		for verb, do := range map[string]func(context.Context, *scene) store.Answer{
			"schedule": func(ctx context.Context, s *scene) store.Answer {
				return s.far.Producer().Schedule(ctx, requests(later(), "new"), false, store.Durability{})[0]
			},
			"replace": func(ctx context.Context, s *scene) store.Answer {
				return s.far.Producer().Schedule(ctx, requests(past(), "x"), true, store.Durability{})[0]
			},
			"cancel": func(ctx context.Context, s *scene) store.Answer {
				return s.far.Producer().Cancel(ctx, "x", "", store.Durability{})
			},
			"reschedule": func(ctx context.Context, s *scene) store.Answer {
				return s.far.Producer().Reschedule(ctx, "x", "", past(), store.Durability{})
			},
		} {
			t.Run(name+"/"+verb, func(t *testing.T) {
				t.Parallel()
				for after := shortly; !endEarly(t, c.begin, c.options, do, after); after *= 2 {
					t.Logf("ended after %s, before the first run was on its way", after)
				}
			})
		}
	}
}

// TestRepeatedTooLate repeats calls that began so long ago that a tombstone may
// have expired: they do nothing, and say that nobody knows.
func TestRepeatedTooLate(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	again := func(age time.Duration) store.Answer {
		e := q.Producer().EarlierCall(false)("x")
		e.Age(age)
		return q.Producer().Schedule(t.Context(), []store.Request{{Message: note("x", "x"), When: later(), Earlier: e}}, false, store.Durability{})[0]
	}
	err := again(time.Minute).Err
	require.ErrorIs(t, err, store.ErrForgotten)
	require.NotErrorIs(t, err, store.ErrUnknown, "or whoever repeats that would not end")
	require.Empty(t, sound(t, rdb, q).Msg)
	answered(t, store.Created, again(30*time.Second))
	require.Equal(t, markedOnce, sound(t, rdb, q).Attempts["x"])
}
