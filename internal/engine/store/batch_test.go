package store_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func quiet(ctx context.Context, q *store.Queue, shard int, number uint64) (message.Claim, error) {
	return q.Shard(shard).Claim(ctx, message.ClaimRequest{
		Token: message.ClaimToken{Instance: "a", Number: number}, Timeout: never, Lease: lease, Quiet: true,
	})
}

// connections is how many connections the server has taken so far.
func connections(t testing.TB, rdb *redis.Client) int {
	t.Helper()
	n, err := strconv.Atoi(rdb.InfoMap(t.Context(), "stats").Item("Stats", "total_connections_received"))
	require.NoError(t, err)
	return n
}

// TestQuietTogether sends the quiet claims of many shards and queues in few
// pipelines, though Redis knows none of the scripts.
func TestQuietTogether(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	proxy := testenv.NewProxy(t, server.Addr())
	rdb := connect(t, "redis://"+proxy.Addr())
	batcher := conn.NewBatcher(rdb)
	near := connect(t, server.URL())
	var queues []*store.Queue
	for range 2 {
		q := store.New(rdb, storetest.Prefix, storetest.New(t, near, 200).Name()).WithBatcher(batcher)
		_, err := q.LoadLayout(t.Context())
		require.NoError(t, err)
		queues = append(queues, q)
	}
	proxy.Delay(50 * time.Millisecond)
	require.NoError(t, rdb.Ping(t.Context()).Err())
	before := connections(t, near)
	require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
	var asking sync.WaitGroup
	for _, q := range queues {
		for shard := range 200 {
			asking.Go(func() {
				claim, err := quiet(t.Context(), q, shard, uint64(shard)+1)
				assert.NoError(t, err, "pool: %+v", rdb.PoolStats())
				assert.Equal(t, message.ClaimGranted, claim.State)
				assert.EqualValues(t, shard+1, claim.Token.Number)
			})
		}
		asking.Go(func() {
			live, _, err := q.Members().Heartbeat(t.Context(), q.Name(), time.Minute)
			assert.NoError(t, err)
			assert.Equal(t, []string{q.Name()}, instancesOf(live), "each has its own answer")
		})
	}
	asking.Wait()
	require.LessOrEqual(t, connections(t, near)-before, 3, "hundreds of callers share a connection")
	for _, q := range queues {
		for shard := range 200 {
			require.Positive(t, near.Exists(t.Context(), storetest.Key(q.Name(), shard, "holder")).Val())
		}
	}
}

// TestQuietEnds with each caller's own ctx, whoever sends, and goes on when
// Redis answers again.
func TestQuietEnds(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	proxy := testenv.NewProxy(t, server.Addr())
	rdb := connect(t, "redis://"+proxy.Addr())
	q := storetest.New(t, rdb, 10).WithBatcher(conn.NewBatcher(rdb))
	proxy.Blackhole(true)
	var asking sync.WaitGroup
	for shard := range 10 {
		asking.Go(func() {
			limit := time.Duration(shard+1) * 100 * time.Millisecond
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			begin := time.Now()
			_, err := quiet(ctx, q, shard, 1)
			assert.Error(t, err)
			assert.Less(t, time.Since(begin), limit+soon/4, "shard %d", shard)
		})
	}
	asking.Wait()
	proxy.Blackhole(false)
	for shard := range 10 {
		require.Eventually(t, func() bool {
			claim, err := quiet(t.Context(), q, shard, 2)
			return err == nil && claim.State == message.ClaimGranted
		}, soon, 10*time.Millisecond)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := quiet(gone, q, 0, 3)
	require.ErrorIs(t, err, context.Canceled)
}

// TestQuietAbandoned ends callers at random moments: none of the others waits
// for nothing.
func TestQuietAbandoned(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 20).WithBatcher(conn.NewBatcher(rdb))
	var asking sync.WaitGroup
	for shard := range 20 {
		asking.Go(func() {
			for n := range uint64(100) {
				ctx, cancel := context.WithTimeout(t.Context(), soon)
				if n%2 == 0 {
					time.AfterFunc(time.Duration(n*uint64(shard))*time.Microsecond, cancel)
				}
				_, err := quiet(ctx, q, shard, n+1)
				if n%2 == 1 {
					assert.NoError(t, err)
				}
				cancel()
			}
		})
	}
	asking.Wait()
}

// TestQuietInCluster goes to the node that holds the shard, after a move and a
// death, too.
func TestQuietInCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	const shards = 6
	q := storetest.New(t, c.rdb, shards).WithBatcher(conn.NewBatcher(c.rdb))
	claim := func(shard int, number uint64) error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		claim, err := quiet(ctx, q, shard, number)
		if err == nil && claim.State != message.ClaimGranted {
			err = fmt.Errorf("state %v", claim.State)
		}
		return err
	}
	for shard := range shards {
		require.NoError(t, claim(shard, 1))
	}
	slot := c.slot(t, storetest.Key(q.Name(), 0, "wake"))
	from := c.owner(t, slot)
	to := (from + 1) % 3
	c.move(t, slot, to)
	for shard := range shards {
		// A node may send it on, and is obeyed at the next time; nothing else may go wrong.
		require.Eventually(t, func() bool {
			err := claim(shard, 2)
			assert.True(t, err == nil || redis.HasErrorPrefix(err, "MOVED"), "%v", err)
			return err == nil
		}, soon, 10*time.Millisecond)
	}
	c.servers[to].Kill()
	require.Error(t, claim(0, 3))
	c.servers[to].Start()
	require.Eventually(t, func() bool {
		_, err := q.Layouts().Ensure(t.Context(), storetest.Layout(shards))
		return err == nil && claim(0, 3) == nil
	}, soon, 50*time.Millisecond)
}

// TestBatchKeepsItsOrder: where the script does not get to a call of a batch, a later call for
// the same message waits for it, though it stands in another run.
func TestBatchKeepsItsOrder(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	replace := func(messages ...*message.Message) {
		requests := make([]store.Request, len(messages))
		for i, m := range messages {
			requests[i] = store.Request{Message: m, When: later()}
		}
		for _, a := range q.Producer().Schedule(t.Context(), requests, true, store.Durability{}) {
			require.NoError(t, a.Err)
		}
	}
	large := strings.Repeat("x", store.MaxBatchBytes*3/4)
	replace(note("a", large))
	replace(note("b", large))
	var batch []*message.Message
	for i := range 43 { // 45 fill a run: it has read enough when it gets to the second large one.
		batch = append(batch, note(fmt.Sprint("m-", i), "body"))
	}
	replace(append(batch, note("a", "first"), note("b", "first"), note("b", "last"))...)
	found, ok, err := inspect.Get(t.Context(), q, "b", "")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "last", string(found.Body))
}
