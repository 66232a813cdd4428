package delay_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestEnsureQueue lets several producers start at once before the first bridge, and
// then a bridge, whose configuration differs.
func TestEnsureQueue(t *testing.T) {
	t.Parallel()
	options, err := redis.ParseURL(testenv.Redis(t))
	require.NoError(t, err)
	rdb, prefix := redis.NewClient(options), testenv.Name(t, "sdk")
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	ensure := func(shards int) {
		assert.NoError(t, delay.EnsureQueue(t.Context(), rdb, "orders", shards, delay.WithPrefix(prefix)))
	}
	var starting sync.WaitGroup
	for range 8 {
		starting.Go(func() {
			ensure(3)
			client, err := delay.NewClient(rdb, "orders", delay.WithPrefix(prefix))
			assert.NoError(t, err)
			_, err = client.Schedule(t.Context(), delay.Message{Topic: "any topic"}, delay.After(time.Hour))
			assert.NoError(t, err)
		})
	}
	starting.Wait()

	queue, err := makeLayout(t.Context(), rdb, prefix, message.NATS)
	require.NoError(t, err)
	bridges := *queue.Layouts().InUse()
	assert.Equal(t, 3, bridges.Shards)
	ensure(5)
	layout, err := store.New(rdb, prefix, "orders").Layouts().Load(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []any{3, bridges.Epoch, message.NATS, message.DefaultMaxSize},
		[]any{layout.Shards, layout.Epoch, layout.Sink, layout.MaxMessage})
}

func TestEnsureQueueFails(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1})
	defer func() { require.NoError(t, rdb.Close()) }()
	for _, shards := range []int{0, store.MaxShards + 1} {
		requireInvalid(t, delay.EnsureQueue(t.Context(), rdb, "orders", shards), "shards", "too many, or none")
	}
	requireInvalid(t, delay.EnsureQueue(t.Context(), rdb, "Orders", 1), "queue", "name")
	requireInvalid(t, delay.EnsureQueue(t.Context(), nil, "orders", 1), "rdb", "client")
	err := delay.EnsureQueue(t.Context(), rdb, "orders", 1, delay.WithTimeout(short))
	require.ErrorIs(t, err, delay.ErrUnavailable)
	require.ErrorContains(t, err, "127.0.0.1:1")
}

// TestSlowFailuresSayWhy names the server, and what was asked of it, whatever
// ends the call.
func TestSlowFailuresSayWhy(t *testing.T) {
	t.Parallel()
	hanging, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, hanging.Close()) })
	for name, addr := range map[string]string{"refuses": "127.0.0.1:1", "hangs": hanging.Addr().String()} {
		for end, timeout := range map[string]time.Duration{"ctx": time.Second, "timeout": 4 * time.Second} {
			t.Run(name+" until "+end, func(t *testing.T) {
				t.Parallel()
				rdb := redis.NewClient(&redis.Options{Addr: addr, DialerRetries: 1})
				defer func() { require.NoError(t, rdb.Close()) }()
				client, err := delay.NewClient(rdb, "orders", delay.WithTimeout(timeout))
				require.NoError(t, err)
				ctx := t.Context()
				if end == "ctx" {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, timeout)
					defer cancel()
				}
				_, err = client.Schedule(ctx, delay.Message{ID: "a", Topic: "t"}, delay.After(time.Hour))
				require.ErrorIs(t, err, delay.ErrUnavailable)
				require.ErrorContains(t, err, "load layout of orders")
				require.ErrorContains(t, err, addr)
			})
		}
	}
}
