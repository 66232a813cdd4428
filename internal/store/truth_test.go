package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/store"
	"github.com/delaybridge/delaybridge/internal/store/storetest"
)

// shortly is the deadline of calls that end while their first run is on its way.
const shortly = 300 * time.Millisecond

// TestUnknownIsSettled ends calls while their first run is on its way: once
// ErrUnknown was answered, that run changes nothing any more, so that whoever
// looks is told the truth.
// It checks I11.
func TestUnknownIsSettled(t *testing.T) {
	t.Parallel()
	deadline := func(s *scene) (context.Context, func()) { return context.WithTimeout(s.Context(), shortly) }
	cancelled := func(s *scene) (context.Context, func()) {
		ctx, cancel := context.WithCancel(s.Context())
		timer := time.AfterFunc(shortly, cancel)
		return ctx, func() { timer.Stop(); cancel() }
	}
	cut := func(s *scene) (context.Context, func()) {
		ctx, cancel := deadline(s)
		timer := time.AfterFunc(shortly/3, func() { _ = (*s.conn.Load()).Close() })
		return ctx, func() { timer.Stop(); cancel() }
	}
	asIs := func(*redis.Options) {}
	byContext := func(o *redis.Options) { o.ContextTimeoutEnabled = true }
	for name, c := range map[string]struct {
		begin   func(*scene) (context.Context, func())
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
				s := newScene(t, c.options)
				s.create(later())()
				want := sound(t, s.rdb, s.near)
				s.ready()
				s.proxy.Blackhole(true)
				ctx, end := c.begin(s)
				defer end()
				require.ErrorIs(t, do(ctx, s).Err, store.ErrUnknown)
				s.deliver()
				require.Equal(t, want, sound(t, s.rdb, s.near))
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
	require.ErrorIs(t, again(time.Minute).Err, store.ErrUnknown)
	require.Empty(t, sound(t, rdb, q).Msg)
	answered(t, store.Created, again(30*time.Second))
	require.Equal(t, markedOnce, sound(t, rdb, q).Attempts["x"])
}
