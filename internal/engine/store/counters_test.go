package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

func TestCounters(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 3)
	layout, err := q.LoadLayout(t.Context())
	require.NoError(t, err)
	meta := func(shard int) string { return storetest.Prefix + ":{" + q.Name() + fmt.Sprint(":", shard) + "}:meta" }
	require.NoError(t, rdb.HSet(t.Context(), meta(1), "scheduled", 7, "published", 9).Err())
	require.NoError(t, rdb.Del(t.Context(), meta(2)).Err())
	counters, err := q.Admin().Counters(t.Context(), []string{"scheduled", "cancelled"})
	require.NoError(t, err)
	require.Contains(t, layout.Epoch, "-"+counters.Life+"-")
	require.Equal(t, []map[string]int64{{"scheduled": 0, "cancelled": 0}, {"scheduled": 7, "cancelled": 0}, nil}, counters.Shards)

	_, err = store.New(rdb, "nobody", "made-it").Admin().Counters(t.Context(), []string{"scheduled"})
	require.ErrorIs(t, err, store.ErrNoLayout)
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
		_, _, err := q.Producer().Get(ctx, "a", "")
		require.ErrorContains(t, err, "connection refused", within)
	}
}
