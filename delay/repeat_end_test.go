package delay_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// mostTurns is more than a loop of repetitions takes that is no busy one.
const mostTurns = 1000

// TestRepeatEnds loses the replies of calls, and has Redis frozen from then on for longer
// than a call can be repeated: the loop that the documentation of Repeat shows ends, for
// each verb, and has changed nothing.
func TestRepeatEnds(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	near := placeIn(t, storetest.Connect(t, server.URL()), kafka)
	verbs := map[string]func(*delay.Client, ...delay.CallOption) error{
		"schedule": func(far *delay.Client, opts ...delay.CallOption) error {
			_, err := far.Schedule(t.Context(), delay.Message{ID: "schedule", Topic: "t"}, delay.After(time.Hour), opts...)
			return err
		},
		"batch": func(far *delay.Client, opts ...delay.CallOption) error {
			request := delay.Request{Message: delay.Message{ID: "batch", Topic: "t"}, When: delay.After(time.Hour)}
			if len(opts) > 0 {
				request.Repeat = delay.Repeated(opts)
			}
			results, _ := far.ScheduleBatch(t.Context(), []delay.Request{request})
			return results[0].Err
		},
		"reschedule": func(far *delay.Client, opts ...delay.CallOption) error {
			return far.Reschedule(t.Context(), delay.Ref{ID: "reschedule"}, delay.After(time.Minute), opts...)
		},
		"cancel": func(far *delay.Client, opts ...delay.CallOption) error {
			return far.Cancel(t.Context(), delay.Ref{ID: "cancel"}, opts...)
		},
	}
	clients, unknown := map[string]*delay.Client{}, map[string]error{}
	for name, call := range verbs {
		proxy := testenv.NewProxy(t, server.Addr())
		far, err := delay.NewClient(storetest.Connect(t, "redis://"+proxy.Addr()), near.queue.Name(), delay.WithTimeout(2*time.Second))
		require.NoError(t, err)
		// Redis gets to know the script, and the client its clock.
		switch err := call(far); name {
		case "reschedule", "cancel":
			require.ErrorIs(t, err, delay.ErrNotFound)
			_, err := near.client(t).Schedule(t.Context(), delay.Message{ID: name, Topic: "t"}, delay.After(time.Hour))
			require.NoError(t, err)
		default:
			require.NoError(t, err)
			require.NoError(t, near.client(t).Cancel(t.Context(), delay.Ref{ID: name}))
		}
		proxy.SwallowReplies(true)
		clients[name], unknown[name] = far, call(far)
		require.ErrorIs(t, unknown[name], delay.ErrUnknown, name)
	}
	before, err := inspect.NewAdmin(near.queue).Stats(t.Context(), 0)
	require.NoError(t, err)
	server.Pause()
	t.Run("frozen", func(t *testing.T) {
		for name, call := range verbs {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				err, turns := unknown[name], 0
				for ; errors.Is(err, delay.ErrUnknown) && turns < mostTurns; turns++ {
					err = call(clients[name], delay.Repeat(err))
				}
				t.Logf("%d turns: %v", turns, err)
				require.Less(t, turns, mostTurns)
				require.ErrorIs(t, err, delay.ErrForgotten)
				for _, other := range []error{delay.ErrUnknown, delay.ErrUnavailable, delay.ErrInvalid} {
					require.NotErrorIs(t, err, other)
				}
			})
		}
	})
	server.Resume()
	after, err := inspect.NewAdmin(near.queue).Stats(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, before.Counters, after.Counters)
}

// TestRepeatIsNoBusyLoop repeats calls that end at once: one whose ctx has ended, and one
// that Redis refuses for good.
func TestRepeatIsNoBusyLoop(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*testing.T, *farMessages) context.Context{
		"ctx ended": func(t *testing.T, _ *farMessages) context.Context {
			t.Helper()
			ended, end := context.WithCancel(t.Context())
			end()
			return ended
		},
		"no layout": func(t *testing.T, f *farMessages) context.Context {
			t.Helper()
			require.NoError(t, f.rdb.Del(t.Context(), f.queue.Keys().Layout()).Err())
			return t.Context()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFar(t, delay.WithTimeout(short))
			err := forgotten(t, f, "scheduled", func() error {
				_, err := f.client.Schedule(t.Context(), order, delay.After(time.Hour))
				return err
			}, func() {})
			ctx, began, turns := prepare(t, f), time.Now(), 0
			fresh := f.place.client(t, delay.WithTimeout(short)) // It knows no layout.
			for ; turns < 10 && errors.Is(err, delay.ErrUnknown); turns++ {
				_, err = fresh.Schedule(ctx, order, delay.After(time.Hour), delay.Repeat(err))
			}
			require.ErrorIs(t, err, delay.ErrUnknown)
			require.GreaterOrEqual(t, time.Since(began), time.Duration(turns-1)*100*time.Millisecond, "%d turns", turns)
		})
	}
}
