package turns_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/store/turns"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func newTurns(t *testing.T) (*turns.Turns, *store.Queue, *redis.Client) {
	t.Helper()
	options, err := redis.ParseURL(testenv.Redis(t))
	require.NoError(t, err)
	rdb := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	q := storetest.New(t, rdb, 1)
	return turns.New(q, store.Durability{}), q, rdb
}

// TestPut: a record takes the place of the one that was read only, and keys have records of their own.
func TestPut(t *testing.T) {
	t.Parallel()
	all, q, rdb := newTurns(t)
	none, err := all.Get(t.Context(), "topic", "key")
	require.NoError(t, err)
	require.Empty(t, none.Waiting)
	require.WithinDuration(t, time.Now(), none.At, time.Minute)
	waiting := []turns.Waiting{{Origin: "o", Stay: "s", Number: 1, DueMs: 7}}
	first, err := all.Put(t.Context(), "topic", "key", none, waiting, time.Hour)
	require.NoError(t, err)
	require.Equal(t, waiting, first.Waiting)
	left, err := rdb.PTTL(t.Context(), q.Keys().Turns(store.Digest("topic", "key"))).Result()
	require.NoError(t, err)
	require.InDelta(t, time.Hour, left, float64(time.Minute))

	there, err := all.Put(t.Context(), "topic", "key", none, nil, time.Hour)
	require.ErrorIs(t, err, turns.ErrMeanwhile, "it was read before")
	require.Equal(t, waiting, there.Waiting)
	other, err := all.Get(t.Context(), "topic", "other key")
	require.NoError(t, err)
	require.Empty(t, other.Waiting)

	empty, err := all.Put(t.Context(), "topic", "key", there, nil, 0)
	require.NoError(t, err)
	require.Empty(t, empty.Waiting)
	_, err = all.Put(t.Context(), "topic", "key", none, waiting, time.Hour)
	require.ErrorIs(t, err, turns.ErrMeanwhile, "a record without messages is none of nobody's")
	left, err = rdb.PTTL(t.Context(), q.Keys().Turns(store.Digest("topic", "key"))).Result()
	require.NoError(t, err)
	require.InDelta(t, time.Minute, left, float64(30*time.Second))
}

// TestFirstIsLate: a first record that comes more than a minute after the look, when another one may have come and gone, is
// put only once its caller has looked again.
func TestFirstIsLate(t *testing.T) {
	t.Parallel()
	server, clock := testenv.StartRedisWithClock(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	all := turns.New(storetest.New(t, rdb, 1), store.Durability{})
	none, err := all.Get(t.Context(), "topic", "key")
	require.NoError(t, err)
	waiting := []turns.Waiting{{Origin: "o", Stay: "s", Number: 1, DueMs: 7}}
	for _, ahead := range []time.Duration{time.Minute, -time.Minute} {
		clock.Set(ahead)
		there, err := all.Put(t.Context(), "topic", "key", none, waiting, time.Hour)
		require.ErrorIs(t, err, turns.ErrMeanwhile, ahead)
		require.Empty(t, there.Waiting)
		none = there
	}
	_, err = all.Put(t.Context(), "topic", "key", none, waiting, time.Hour)
	require.NoError(t, err)
}

// TestUnreadable: a record that a later version has written is an error, and no empty one.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	all, q, rdb := newTurns(t)
	require.NoError(t, rdb.HSet(t.Context(), q.Keys().Turns(store.Digest("topic", "key")), "record", "{").Err())
	_, err := all.Get(t.Context(), "topic", "key")
	require.ErrorContains(t, err, "record")
}

// TestDurable: a change that a replica must have is done when it has it, also if it is made again, and is an error without a replica.
func TestDurable(t *testing.T) {
	t.Parallel()
	primary := testenv.StartRedis(t)
	rdb := redis.NewClient(&redis.Options{Addr: primary.Addr()})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	q := storetest.New(t, rdb, 1)
	all := turns.New(q, store.ByReplicas(1))
	require.True(t, all.IsDurable())
	none, err := all.Get(t.Context(), "topic", "key")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = all.Put(ctx, "topic", "key", none, []turns.Waiting{{Origin: "o"}}, time.Hour)
	require.ErrorIs(t, err, store.ErrUnavailable)
	there, err := all.Get(t.Context(), "topic", "key")
	require.NoError(t, err)
	require.Len(t, there.Waiting, 1, "it is there, but not durable")

	host, port, err := net.SplitHostPort(primary.Addr())
	require.NoError(t, err)
	replica := testenv.StartRedis(t, "--replicaof", host+" "+port)
	_, err = all.Put(t.Context(), "topic", "key", there, there.Waiting, time.Hour)
	require.NoError(t, err)
	copied := redis.NewClient(&redis.Options{Addr: replica.Addr()})
	defer func() { require.NoError(t, copied.Close()) }()
	require.NoError(t, copied.HGet(t.Context(), q.Keys().Turns(store.Digest("topic", "key")), "record").Err())
}
