package store_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// clockedRedis is an in-process Redis with a clock of its own, which notes for how
// long from then on each run of a producer's script may take effect.
type clockedRedis struct {
	*miniredis.Miniredis
	mu      sync.Mutex
	now     time.Time
	windows []time.Duration
}

func newClocked(t *testing.T, now time.Time) *clockedRedis {
	c := &clockedRedis{Miniredis: miniredis.RunT(t)}
	c.set(now)
	c.watch()
	return c
}

// watch is called again after a restart.
func (c *clockedRedis) watch() {
	c.Server().SetPreHook(func(_ *server.Peer, command string, args ...string) bool {
		// EVALSHA sha keys key… epoch span …
		if command != "EVALSHA" && command != "EVAL" {
			return false
		}
		keys, _ := strconv.Atoi(args[1])
		if keys < 8 {
			return false // No producer's.
		}
		ms, _ := strconv.ParseInt(strings.Fields(args[3+keys])[1], 10, 64)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.windows = append(c.windows, time.UnixMilli(ms).Sub(c.now))
		return false
	})
}

func (c *clockedRedis) set(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
	c.SetTime(now)
}

// seen are the windows of the runs since the last call of it.
func (c *clockedRedis) seen() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	windows := c.windows
	c.windows = nil
	return windows
}

// bounded reports whether a run could take effect, and not for much longer than a
// timeout: the fake clock stands still meanwhile.
func bounded(window time.Duration) bool {
	return window > 0 && window <= store.DefaultTimeout+time.Minute
}

// TestClockOfEachNode spreads shards over nodes whose clocks differ.
func TestClockOfEachNode(t *testing.T) {
	t.Parallel()
	now := time.Now()
	nodes := []*clockedRedis{newClocked(t, now), newClocked(t, now.Add(-time.Hour)), newClocked(t, now.Add(time.Hour))}
	rdb := redis.NewClusterClient(&redis.ClusterOptions{ClusterSlots: func(context.Context) (slots []redis.ClusterSlot, err error) {
		const all = 1 << 14
		for i, node := range nodes {
			slots = append(slots, redis.ClusterSlot{
				Start: i * all / len(nodes), End: (i+1)*all/len(nodes) - 1, Nodes: []redis.ClusterNode{{Addr: node.Addr()}},
			})
		}
		return slots, nil
	}})
	t.Cleanup(func() { _ = rdb.Close() })
	q := storetest.New(t, rdb, 16)
	for round := range 3 {
		ids := make([]string, 64)
		for i := range ids {
			ids[i] = fmt.Sprintf("%d-%d", round, i)
		}
		for _, answer := range q.Producer().Schedule(t.Context(), requests(later(), ids...), false, store.Durability{}) {
			answered(t, store.Created, answer)
		}
	}
	for _, node := range nodes {
		windows := node.seen()
		require.NotEmpty(t, windows)
		for _, window := range windows {
			require.Truef(t, bounded(window), "a run may take effect for %v", window)
		}
	}
}

// TestClockStepsBack sets Redis' clock back, as a failover to a node that is
// behind does: the estimate follows the first answer.
func TestClockStepsBack(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := newClocked(t, now)
	q := storetest.New(t, connect(t, "redis://"+c.Addr()), 1)
	create(t, q, "before", later())
	require.True(t, bounded(c.seen()[0]))
	c.set(now.Add(-time.Hour))
	create(t, q, "at", later())
	c.seen()
	create(t, q, "after", later())
	require.True(t, bounded(c.seen()[0]))
	require.WithinDuration(t, now.Add(-time.Hour), q.Now(), time.Minute)
	c.set(now.Add(time.Hour))
	create(t, q, "ahead", later())
	c.seen()
	create(t, q, "and after", later())
	require.True(t, bounded(c.seen()[0]))
}

// TestClockAskedAfterLoss: where a connection was lost another server may
// answer, whose clock is behind, so that it is asked before the next run.
func TestClockAskedAfterLoss(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := newClocked(t, now)
	q := storetest.New(t, connect(t, "redis://"+c.Addr()), 1)
	create(t, q, "before", later())
	c.seen()
	c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.Error(t, q.Producer().Schedule(ctx, requests(later(), "x"), false, store.Durability{})[0].Err)
	c.set(now.Add(-time.Hour))
	require.NoError(t, c.Restart())
	c.watch()
	create(t, q, "after", later())
	windows := c.seen()
	require.NotEmpty(t, windows)
	for _, window := range windows {
		require.Truef(t, bounded(window), "a run may take effect for %v", window)
	}
}
