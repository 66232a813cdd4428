package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestUnreachableKinds: where neither a sentinel nor a node of a Cluster
// answers, nothing was sent, and that is said.
func TestUnreachableKinds(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	silent := testenv.NewProxy(t, server.Addr())
	silent.Blackhole(true)
	closed := testenv.NewProxy(t, server.Addr())
	closed.Refuse(true)
	options := func(addr string) *redis.UniversalOptions {
		return &redis.UniversalOptions{
			Addrs: []string{addr}, MasterName: "primary", DialTimeout: 200 * time.Millisecond, DialerRetries: 1,
			ReadTimeout: 200 * time.Millisecond, WriteTimeout: 200 * time.Millisecond, ContextTimeoutEnabled: true,
			MaxRetries: -1,
		}
	}
	known := storetest.New(t, connect(t, server.URL()), 1)
	for name, addr := range map[string]string{
		"nobody": "127.0.0.1:1", "silent": silent.Addr(), "closed": closed.Addr(), "no sentinel": server.Addr(),
	} {
		clients := map[string]redis.UniversalClient{"sentinel": redis.NewFailoverClient(options(addr).Failover())}
		if name != "no sentinel" {
			clients["cluster"] = redis.NewClusterClient(options(addr).Cluster())
		}
		for kind, rdb := range clients {
			t.Cleanup(func() { _ = rdb.Close() })
			q := store.New(rdb, storetest.Prefix, known.Name())
			for verb := range everyVerb(t.Context(), q) {
				t.Run(name+"/"+kind+"/"+verb, func(t *testing.T) {
					t.Parallel()
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					err := everyVerb(ctx, q)[verb]()
					require.ErrorIs(t, err, store.ErrUnavailable)
					require.NotErrorIs(t, err, store.ErrUnknown)
				})
			}
		}
	}
}

// TestClusterForgetsTheDead: a client that reads the slots once a minute finds
// a node that lives again within a moment.
func TestClusterForgetsTheDead(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	q := storetest.New(t, c.rdb, 1)
	slot := c.slot(t, storetest.Key(q.Name(), 0, "wake"))
	from := c.owner(t, slot)
	to := (from + 1) % 3
	c.move(t, slot, to) // The client is not told.
	c.servers[from].Kill()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	answer := q.Producer().Schedule(ctx, requests(later(), "x"), false, store.Durability{})[0]
	answered(t, store.Created, answer)
}

// TestCauseOutlivesTheDeadline: a call that has run out of time says why nothing
// came of it, and not that it has run out of time.
func TestCauseOutlivesTheDeadline(t *testing.T) {
	t.Parallel()
	// go-redis dials five times by default, 100 ms apart, and tells nothing before.
	for retries, within := range map[int]time.Duration{1: 2 * time.Second, 5: 4 * time.Second} {
		rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true, DialerRetries: retries})
		t.Cleanup(func() { _ = rdb.Close() })
		q := store.New(rdb, "delay", "orders")
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		answer := q.Producer().Cancel(ctx, "a", "", store.Durability{})
		require.ErrorIs(t, answer.Err, store.ErrUnavailable)
		require.ErrorContains(t, answer.Err, "connection refused", within)
		require.Equal(t, "dial 127.0.0.1:1: connect: connection refused", rediserr.Cause(answer.Err))

		ctx, cancelGet := context.WithTimeout(t.Context(), within)
		defer cancelGet()
		_, _, err := inspect.Get(ctx, q, "a", "")
		require.ErrorContains(t, err, "connection refused", within)
	}
}
