package delay_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// farMessages is a client whose first connection goes through a proxy that loses
// replies; the next ones wait at a gate and then go straight.
type farMessages struct {
	*place
	client *delay.Client
	proxy  *testenv.Proxy
	gate   chan struct{}
}

func newFar(t *testing.T, opts ...delay.Option) *farMessages {
	t.Helper()
	f := &farMessages{place: newPlace(t, kafka), gate: make(chan struct{})}
	url := testenv.Redis(t)
	addr := f.rdb.Options().Addr
	f.proxy = testenv.NewProxy(t, addr)
	var isOpen atomic.Bool
	rdb := storetest.Connect(t, url, func(o *redis.Options) {
		o.PoolSize, o.DialTimeout = 1, soon
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var dialer net.Dialer
			if !isOpen.Load() {
				return dialer.DialContext(ctx, network, f.proxy.Addr())
			}
			select {
			case <-f.gate:
				return dialer.DialContext(ctx, network, addr)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	})
	var err error
	f.client, err = delay.NewClient(rdb, f.queue.Name(), opts...)
	require.NoError(t, err)
	f.loadScripts(t)
	require.Eventually(t, func() bool { // Opens the connection, loads the layout: a busy machine may take longer than the client waits.
		_, err := f.client.Get(t.Context(), orderRef)
		return errors.Is(err, delay.ErrNotFound)
	}, soon, time.Millisecond)
	isOpen.Store(true)
	return f
}

const soon = 20 * time.Second

// loadScripts makes Redis know them: a lost reply must not be a lost NOSCRIPT.
func (f *farMessages) loadScripts(t *testing.T) {
	t.Helper()
	p := newPlace(t, kafka)
	client := p.client(t)
	res, err := client.Schedule(t.Context(), order, delay.After(time.Hour))
	require.NoError(t, err)
	require.NoError(t, client.Reschedule(t.Context(), res.Ref, delay.After(time.Hour)))
	require.NoError(t, client.Cancel(t.Context(), res.Ref))
}

// lost makes a call whose first run is executed and its reply lost; between
// happens before the second run.
func (f *farMessages) lost(t *testing.T, call func(), counter string, n int64, between func()) {
	t.Helper()
	f.proxy.SwallowReplies(true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		call()
	}()
	require.Eventually(t, func() bool {
		stats, err := inspect.NewAdmin(f.queue).Stats(t.Context(), 0)
		return err == nil && stats.Counters[counter] >= n
	}, soon, 5*time.Millisecond, "the first run is executed")
	between()
	close(f.gate)
	<-done
}

// TestScheduleReplyLost takes effect once.
func TestScheduleReplyLost(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	var res delay.Result
	var err error
	f.lost(t, func() { res, err = f.client.Schedule(t.Context(), order, delay.After(time.Hour)) }, "scheduled", 1, func() {})
	require.NoError(t, err)
	require.Equal(t, delay.Created, res.Status)
	require.EqualValues(t, 1, f.scheduled(t))
	info, err := f.place.client(t).Get(t.Context(), res.Ref)
	require.NoError(t, err)
	require.Equal(t, res.DueAt, info.DueAt)
	require.Equal(t, 1, info.Attempt)
}

// TestScheduleReplyLostUnknown cannot tell what became of it.
func TestScheduleReplyLostUnknown(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	near := f.place.client(t)
	var res delay.Result
	var err error
	f.lost(t, func() { res, err = f.client.Schedule(t.Context(), order, delay.At(time.Unix(1, 0))) }, "scheduled", 1, func() {
		f.finish(t, acked)
		before, err := f.rdb.Time(t.Context()).Result()
		require.NoError(t, err)
		for now := before; now.Sub(before) < 2*time.Millisecond; {
			now, err = f.rdb.Time(t.Context()).Result()
			require.NoError(t, err)
		}
		_, err = near.Schedule(t.Context(), order, delay.After(time.Hour))
		require.NoError(t, err)
	})
	require.ErrorIs(t, err, delay.ErrUnknown)
	require.Equal(t, orderRef, res.Ref)
	require.Empty(t, res.Status)
	require.True(t, res.DueAt.IsZero())
}

// TestReplyLostAtTheEnd has no time left for a second run.
func TestReplyLostAtTheEnd(t *testing.T) {
	t.Parallel()
	f := newFar(t, delay.WithTimeout(1500*time.Millisecond))
	var err error
	f.lost(t, func() { _, err = f.client.Schedule(t.Context(), order, delay.After(time.Hour)) }, "scheduled", 1, func() {})
	require.ErrorIs(t, err, delay.ErrUnknown)
	res, err := f.place.client(t, delay.WithConflict(delay.Keep)).Schedule(t.Context(), order, delay.After(time.Minute))
	require.NoError(t, err, "repeated with the policy Keep")
	require.Equal(t, delay.Existing, res.Status)
}

// TestBatchReplyLost tells the truth of each item.
func TestBatchReplyLost(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	near := f.place.client(t)
	request := func(id string, when delay.When) delay.Request {
		return delay.Request{Message: delay.Message{ID: id, Topic: "t"}, When: when}
	}
	later, past := delay.After(time.Hour), delay.At(time.Unix(1, 0))
	var results []delay.Result
	call := func() {
		results, _ = f.client.ScheduleBatch(t.Context(), []delay.Request{
			request("alone", later), request("cancelled", later), request("published", past),
			request("invalid\n", later), request("alone", later),
		})
	}
	f.lost(t, call, "scheduled", 3, func() {
		require.NoError(t, near.Cancel(t.Context(), delay.Ref{ID: "cancelled"}))
		f.finish(t, acked)
	})
	for i, want := range []error{nil, nil, nil, delay.ErrInvalid, delay.ErrDuplicate} {
		require.ErrorIs(t, results[i].Err, want, "item %d", i)
	}
	require.EqualValues(t, 4, f.scheduled(t), "no trace is left of the published one: created again")
	_, err := near.Get(t.Context(), delay.Ref{ID: "cancelled"})
	require.ErrorIs(t, err, delay.ErrNotFound)
	require.ErrorIs(t, near.Cancel(t.Context(), delay.Ref{ID: "published"}), delay.ErrMaybePublished, "but marked")
	require.NoError(t, near.Cancel(t.Context(), delay.Ref{ID: "alone"}))
}

// TestCancelReplyLost says what the first run did.
func TestCancelReplyLost(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	near := f.place.client(t)
	_, err := near.Schedule(t.Context(), order, delay.After(time.Hour))
	require.NoError(t, err)
	f.lost(t, func() { err = f.client.Cancel(t.Context(), orderRef) }, "cancelled", 1, func() {
		_, err := near.Schedule(t.Context(), order, delay.After(time.Hour))
		require.NoError(t, err)
	})
	require.NoError(t, err)
	_, err = near.Get(t.Context(), orderRef)
	require.NoError(t, err, "the one that came since stays")
}

// TestRescheduleReplyLost says what the first run did.
func TestRescheduleReplyLost(t *testing.T) {
	t.Parallel()
	f := newFar(t)
	near := f.place.client(t)
	_, err := near.Schedule(t.Context(), order, delay.After(time.Hour))
	require.NoError(t, err)
	f.lost(t, func() { err = f.client.Reschedule(t.Context(), orderRef, delay.At(time.Unix(1, 0))) }, "rescheduled", 1, func() {
		f.finish(t, acked)
	})
	require.NoError(t, err)
	_, err = near.Get(t.Context(), orderRef)
	require.ErrorIs(t, err, delay.ErrNotFound)
}
