package delay_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// mostTurns is more than a loop of repetitions takes that is no busy one.
const mostTurns = 1000

// frozenRedis is an in-process Redis whose replies can be lost, and that can be frozen: what it is
// sent then is run when it thaws.
type frozenRedis struct {
	redis    *miniredis.Miniredis
	isMute   atomic.Bool
	isFrozen atomic.Bool
	mu       sync.Mutex
	unread   map[*frozenConn][]byte
}

type frozenConn struct {
	net.Conn
	server *frozenRedis
}

func (f *frozenRedis) client(t *testing.T, dial func() (net.Conn, error)) *redis.Client {
	t.Helper()
	return storetest.Connect(t, "redis://127.0.0.1:1", func(o *redis.Options) {
		o.Dialer = func(context.Context, string, string) (net.Conn, error) { return dial() }
	})
}

// dial connects a client that the server can fail.
func (f *frozenRedis) dial() (net.Conn, error) {
	conn, err := f.redis.Dial()
	return &frozenConn{conn, f}, err
}

func (c *frozenConn) Read(b []byte) (n int, err error) {
	n, err = c.Conn.Read(b)
	for err == nil && c.server.isMute.Load() {
		n, err = c.Conn.Read(b)
	}
	return n, err
}

func (c *frozenConn) Write(b []byte) (int, error) {
	if !c.server.isFrozen.Load() {
		return c.Conn.Write(b)
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.server.unread[c] = append(c.server.unread[c], b...)
	return len(b), nil
}

// thaw runs what the server was sent while it was frozen.
func (f *frozenRedis) thaw(t *testing.T) {
	t.Helper()
	require.NotEmpty(t, f.unread)
	for _, sent := range f.unread {
		conn, err := f.redis.Dial()
		require.NoError(t, err)
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		_, err = conn.Write(sent)
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, conn.Close())
	}
}

// TestRepeatEnds loses the replies of calls, and has Redis frozen from then on for longer
// than a call can be repeated: the loop that the documentation of Repeat shows ends, for
// each verb, and has changed nothing. In a bubble that takes no time.
func TestRepeatEnds(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(context.Context, *delay.Client, ...delay.CallOption) error{
		"schedule": func(ctx context.Context, far *delay.Client, opts ...delay.CallOption) error {
			_, err := far.Schedule(ctx, delay.Message{ID: "m", Topic: "t"}, delay.After(time.Hour), opts...)
			return err
		},
		"batch": func(ctx context.Context, far *delay.Client, opts ...delay.CallOption) error {
			request := delay.Request{Message: delay.Message{ID: "m", Topic: "t"}, When: delay.After(time.Hour)}
			if len(opts) > 0 {
				request.Repeat = delay.Repeated(opts)
			}
			results, _ := far.ScheduleBatch(ctx, []delay.Request{request})
			return results[0].Err
		},
		"reschedule": func(ctx context.Context, far *delay.Client, opts ...delay.CallOption) error {
			return far.Reschedule(ctx, delay.Ref{ID: "m"}, delay.After(time.Minute), opts...)
		},
		"cancel": func(ctx context.Context, far *delay.Client, opts ...delay.CallOption) error {
			return far.Cancel(ctx, delay.Ref{ID: "m"}, opts...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { repeatEnds(t, name, call) })
		})
	}
}

func repeatEnds(t *testing.T, name string, call func(context.Context, *delay.Client, ...delay.CallOption) error) {
	t.Helper()
	f := &frozenRedis{redis: miniredis.NewMiniRedis(), unread: map[*frozenConn][]byte{}}
	defer f.redis.Close()
	near := placeIn(t, f.client(t, f.redis.Dial), kafka)
	far, err := delay.NewClient(f.client(t, f.dial), near.queue.Name(), delay.WithTimeout(2*time.Second))
	require.NoError(t, err)
	// Redis gets to know the script, and the client its clock.
	switch err := call(t.Context(), far); name {
	case "reschedule", "cancel":
		require.ErrorIs(t, err, delay.ErrNotFound)
		_, err := near.client(t).Schedule(t.Context(), delay.Message{ID: "m", Topic: "t"}, delay.After(time.Hour))
		require.NoError(t, err)
	default:
		require.NoError(t, err)
		require.NoError(t, near.client(t).Cancel(t.Context(), delay.Ref{ID: "m"}))
	}
	f.isMute.Store(true)
	err = call(t.Context(), far)
	require.ErrorIs(t, err, delay.ErrUnknown)
	before, statsErr := inspect.NewAdmin(near.queue).Stats(t.Context(), 0)
	require.NoError(t, statsErr)
	f.isFrozen.Store(true)
	turns := 0
	for ; errors.Is(err, delay.ErrUnknown) && turns < mostTurns; turns++ {
		err = call(t.Context(), far, delay.Repeat(err))
	}
	t.Logf("%d turns: %v", turns, err)
	require.Less(t, turns, mostTurns)
	require.ErrorIs(t, err, delay.ErrForgotten)
	for _, other := range []error{delay.ErrUnknown, delay.ErrUnavailable, delay.ErrInvalid} {
		require.NotErrorIs(t, err, other)
	}
	f.thaw(t)
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
