package inspect_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestDemand: over all shards, each message that waits is due, upcoming, parked or none of them.
func TestDemand(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 3)
	admin := inspect.NewAdmin(q)
	for i := range 10 {
		storetest.Create(t, q, fmt.Sprint("parked-", i), storetest.Past())
	}
	storetest.NewBridge(t, q).Park(7, message.ParkedRoute{Slot: 7, Route: "topic", Reason: "no leader", Since: time.Now()})
	for i := range 20 {
		storetest.Create(t, q, fmt.Sprint("due-", i), storetest.Past())
	}
	now, err := q.Clock(t.Context())
	require.NoError(t, err)
	for i := range 30 {
		storetest.Create(t, q, fmt.Sprint("soon-", i), store.When{Ms: now.Add(time.Hour).UnixMilli()})
	}
	storetest.Create(t, q, "in a day", store.When{Ms: now.Add(24 * time.Hour).UnixMilli()})
	d, err := admin.Demand(t.Context(), 2*time.Hour)
	require.NoError(t, err)
	assert.WithinDuration(t, now, d.Now, time.Minute)
	parked := d.Parked
	assert.Positive(t, parked)
	assert.Equal(t, inspect.Demand{Now: d.Now, Due: 30 - parked, Upcoming: 30, Parked: parked}, d, "a bridge parks what it has claimed of one shard")
	assert.Equal(t, 60-parked, d.Messages())
	d, err = admin.Demand(t.Context(), time.Minute)
	require.NoError(t, err)
	assert.Equal(t, []int64{30 - parked, 0}, []int64{d.Due, d.Upcoming})

	_, err = admin.Pause(t.Context(), "topic", "ann")
	require.NoError(t, err)
	d, err = admin.Demand(t.Context(), 2*time.Hour)
	require.NoError(t, err)
	assert.False(t, d.IsPaused, "only a topic is")
	_, err = admin.Pause(t.Context(), "", "ann")
	require.NoError(t, err)
	d, err = admin.Demand(t.Context(), 2*time.Hour)
	require.NoError(t, err)
	assert.True(t, d.IsPaused)
	assert.Zero(t, d.Messages())
	assert.EqualValues(t, 30, d.Upcoming)

	for _, within := range []time.Duration{-1, 11 * 366 * 24 * time.Hour} {
		_, err = admin.Demand(t.Context(), within)
		var invalid *message.InvalidError
		require.ErrorAs(t, err, &invalid)
		assert.Equal(t, []string{"within", within.String()}, []string{invalid.Field, invalid.Value})
	}
	_, err = inspect.NewAdmin(store.New(shared(t), "nobody", "has-made")).Demand(t.Context(), time.Minute)
	require.ErrorIs(t, err, store.ErrNoLayout)
}

// BenchmarkDemand asks a queue of a million messages in 8 shards, and says what that costs Redis.
func BenchmarkDemand(b *testing.B) {
	rdb := shared(b)
	q := storetest.New(b, rdb, 8)
	million(b, q)
	before := processor(b, rdb)
	for b.Loop() {
		d, err := inspect.NewAdmin(q).Demand(b.Context(), time.Hour)
		require.NoError(b, err)
		require.Positive(b, d.Upcoming)
	}
	b.ReportMetric(1e6*(processor(b, rdb)-before)/float64(b.N), "redis-µs/op")
}

// processor is how many seconds of a processor Redis has used.
func processor(b *testing.B, rdb *redis.Client) (seconds float64) {
	b.Helper()
	cpu, err := rdb.InfoMap(b.Context(), "cpu").Result()
	require.NoError(b, err)
	for _, part := range []string{"used_cpu_user", "used_cpu_sys"} {
		n, err := strconv.ParseFloat(cpu["CPU"][part], 64)
		require.NoError(b, err)
		seconds += n
	}
	return seconds
}
