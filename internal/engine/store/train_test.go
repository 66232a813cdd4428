package store_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// names are so many identities, enough for each of a few shards to have some.
func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint("m-", i)
	}
	return list
}

// TestTrain sends what goes to several shards by one connection, also where it is
// more than one script of each may take.
func TestTrain(t *testing.T) {
	t.Parallel()
	near := connect(t, testenvPrivate(t))
	const shards, n = 8, 3000
	far := connect(t, "redis://"+near.Options().Addr)
	q := store.New(far, storetest.Prefix, storetest.New(t, near, shards).Name())
	create(t, q, "first", later())
	before := connections(t, near)
	for _, answer := range q.Producer().Schedule(t.Context(), requests(later(), names(n)...), false, store.Durability{}) {
		answered(t, store.Created, answer)
	}
	require.Less(t, connections(t, near)-before, shards/2, "a pipeline's first, and a client that dials before it needs to")
	var waiting int64
	for shard := range shards {
		stats, err := inspect.NewAdmin(q).Stats(t.Context(), shard)
		require.NoError(t, err)
		waiting += stats.Waiting
	}
	require.EqualValues(t, n+1, waiting)
}

// TestTrainOfCallers: concurrent calls for several shards travel together.
func TestTrainOfCallers(t *testing.T) {
	t.Parallel()
	const shards, n = 8, 200
	backend := testenv.StartRedis(t)
	proxy := testenv.NewProxy(t, backend.Addr())
	near, far := connect(t, backend.URL()), connect(t, "redis://"+proxy.Addr())
	q := store.New(far, storetest.Prefix, storetest.New(t, near, shards).Name()).WithCoalescing()
	create(t, q, "first", later())
	proxy.Delay(50 * time.Millisecond)
	connected, scripts := connections(t, near), scriptCalls(t, near)
	var answers [n]store.Answer
	var running sync.WaitGroup
	for i, name := range names(n) {
		running.Go(func() {
			answers[i] = q.Producer().Schedule(t.Context(), requests(later(), name), false, store.Durability{})[0]
		})
	}
	running.Wait()
	for _, answer := range answers {
		answered(t, store.Created, answer)
	}
	require.LessOrEqual(t, connections(t, near)-connected, 2*store.Tracks, "hundreds of callers share those of the tracks")
	require.Less(t, scriptCalls(t, near)-scripts, int64(n/2))
}

// TestTrainBreaks: where a connection breaks while scripts travel together, those
// that have answered stay answered, and only the others have a second run.
func TestTrainBreaks(t *testing.T) {
	t.Parallel()
	const shards, broken = 4, 3
	f := newFake(t)
	q := storetest.New(t, f.rdb, shards)
	create(t, q, "first", later()) // Redis knows the script.
	var scripts, seconds atomic.Int64
	f.Server().SetPreHook(func(peer *server.Peer, command string, args ...string) bool {
		if command != "EVALSHA" {
			return false
		}
		const startArg = 2 + 10 + 2 // behind the keys
		if args[startArg] != "" {
			seconds.Add(1)
		}
		if scripts.Add(1) != broken {
			return false
		}
		peer.Flush()
		peer.Close()
		return true
	})
	for _, answer := range q.Producer().Schedule(t.Context(), requests(later(), names(50)...), false, store.Durability{}) {
		answered(t, store.Created, answer)
	}
	require.EqualValues(t, shards-broken+1, seconds.Load(), "second runs")
	for shard := range shards {
		s, err := storetest.Dump(t.Context(), f.rdb, q.Name(), shard)
		require.NoError(t, err)
		require.NoError(t, s.Check())
	}
}

// TestTrainRefused: a shard that refuses a script does not refuse those that travel with it.
func TestTrainRefused(t *testing.T) {
	t.Parallel()
	const shards = 4
	for _, refusal := range []string{
		"TRYAGAIN Multiple keys request during rehashing of slot", "MOVED 1 127.0.0.1:1", "NOSCRIPT No matching script.",
	} {
		t.Run(refusal, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			q := storetest.New(t, f.rdb, shards)
			create(t, q, "first", later())
			f.refuse(refusal, 2)
			for _, answer := range q.Producer().Schedule(t.Context(), requests(later(), names(50)...), false, store.Durability{}) {
				answered(t, store.Created, answer)
			}
			for shard := range shards {
				s, err := storetest.Dump(t.Context(), f.rdb, q.Name(), shard)
				require.NoError(t, err)
				require.NoError(t, s.Check())
				require.Empty(t, s.Attempts, "no run is a second run")
			}
		})
	}
}
