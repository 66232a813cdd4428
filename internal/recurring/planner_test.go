package recurring_test

import (
	"context"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	storerecurring "github.com/delaybridge/delaybridge/internal/engine/store/recurring"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/recurring"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tally is an observer.
type tally struct{ looks, schedules, scheduled, skipped atomic.Int64 }

func (o *tally) RecurringSchedules(_ string, n int) {
	o.schedules.Store(int64(n))
	o.looks.Add(1)
}

func (o *tally) RecurringFirings(_ string, scheduled, skipped int64) {
	o.scheduled.Add(scheduled)
	o.skipped.Add(skipped)
}

// commands counts what a client sends.
type commands struct{ n atomic.Int64 }

func (c *commands) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { c.n.Add(1); return next(ctx, cmd) }
}

func (c *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { c.n.Add(int64(len(cmds))); return next(ctx, cmds) }
}

func newClient(t *testing.T) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(testenv.Redis(t))
	require.NoError(t, err)
	rdb := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return rdb
}

// run begins a planner with its own view of the queue, which ends with the test at the latest.
func run(t *testing.T, q *store.Queue, isOurs func() bool) (o *tally, sent *commands, wake, stop func()) {
	t.Helper()
	rdb := newClient(t)
	sent, o = &commands{}, &tally{}
	rdb.AddHook(sent)
	own := store.New(struct{ redis.UniversalClient }{rdb}, storetest.Prefix, q.Name()) // Its calls go through the hook.
	p := recurring.New(q.Name(), storerecurring.New(own, store.Durability{}), isOurs, o, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); p.Run(ctx) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return o, sent, p.Wake, stop
}

func always() bool { return true }

func waiting(t *testing.T, q *store.Queue) []inspect.ListItem {
	t.Helper()
	page, err := inspect.NewAdmin(q).List(t.Context(), inspect.ListRequest{Filter: inspect.Filter{State: inspect.StateScheduled}, Limit: inspect.MaxList})
	require.NoError(t, err)
	return page.Messages
}

// TestPlanner: a hint is enough for a firing a second away, and an idle queue costs a command at a look.
func TestPlanner(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, newClient(t), 3)
	o, sent, wake, _ := run(t, q, always)
	require.Eventually(t, func() bool { return o.looks.Load() == 1 }, time.Minute, time.Millisecond)
	before := sent.n.Load()
	wake()
	require.Eventually(t, func() bool { return o.looks.Load() == 2 }, 4*time.Second, time.Millisecond)
	require.Equal(t, before+1, sent.n.Load(), "commands of a look where there is nothing to do")
	r, _, err := storerecurring.New(q, store.Durability{}).Set(t.Context(), "n", storerecurring.Spec{Cron: "@every 1s", Topic: "t"})
	require.NoError(t, err)
	wake()
	first := r.SetAt.Truncate(time.Second).Add(time.Second)
	require.Eventually(t, func() bool {
		return slices.ContainsFunc(waiting(t, q), func(m inspect.ListItem) bool { return m.Found.DueAt.Equal(first) })
	}, time.Minute, time.Millisecond)
	require.Equal(t, int64(1), o.schedules.Load())
}

// TestPlannersInTurn: one goes on where another has ended, and each firing is made once. An instance to which the queue does
// not belong does nothing.
func TestPlannersInTurn(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, newClient(t), 3)
	schedules := storerecurring.New(q, store.Durability{})
	_, _, err := schedules.Set(t.Context(), "n", storerecurring.Spec{Cron: "@every 1s", Topic: "t"})
	require.NoError(t, err)
	_, sent, _, _ := run(t, q, func() bool { return false })
	first, _, wake, stop := run(t, q, always)
	require.Eventually(t, func() bool { return first.scheduled.Load() >= 30 }, time.Minute, 10*time.Millisecond)
	stop()
	wake()
	second, _, _, _ := run(t, q, always)
	third, _, _, _ := run(t, q, always)
	require.Eventually(t, func() bool { return second.scheduled.Load()+third.scheduled.Load() >= 5 }, time.Minute, 10*time.Millisecond)
	require.Zero(t, sent.n.Load())
	kept, err := schedules.Get(t.Context(), "n")
	require.NoError(t, err)
	due := map[time.Time]int{}
	for _, m := range waiting(t, q) {
		due[m.Found.DueAt]++
		require.Equal(t, 1, due[m.Found.DueAt])
	}
	// The last ones may be decided and not scheduled yet.
	for at := kept.SetAt.Truncate(time.Second).Add(time.Second); !at.After(kept.Planned.Add(-10 * time.Second)); at = at.Add(time.Second) {
		require.Equal(t, 1, due[time.UnixMilli(at.UnixMilli())], at)
	}
}
