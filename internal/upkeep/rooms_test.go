package upkeep_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/telemetry"
	"github.com/delaybridge/delaybridge/internal/upkeep"
)

// TestMemory: what Redis takes of its maxmemory, where it has one.
func TestMemory(t *testing.T) {
	t.Parallel()
	rdb := storetest.Connect(t, testenv.StartRedis(t).URL())
	m := upkeep.NewMemory(rdb, telemetry.New(""))
	m.Look(t.Context())
	assert.Nil(t, m.Room(), "it has none")
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(1<<30)).Err())
	m.Look(t.Context())
	require.NotNil(t, m.Room())
	assert.Equal(t, int64(1<<30), m.Room().Limit)
	assert.Positive(t, m.Room().Used)
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	m.Look(t.Context())
	assert.WithinDuration(t, time.Now(), m.Room().FullAt, time.Minute, "it is full")
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	m.Look(t.Context())
	assert.Nil(t, m.Room())
}

// TestFullFirst: of several primaries, the one counts that is full first.
func TestFullFirst(t *testing.T) {
	t.Parallel()
	now := time.Now()
	half, more := &inspect.Room{Used: 500, Limit: 1000}, &inspect.Room{Used: 600, Limit: 1000}
	later, soon := &inspect.Room{Used: 110, Limit: 1000, FullAt: now.Add(time.Hour)}, &inspect.Room{Used: 200, Limit: 1000, FullAt: now}
	assert.Nil(t, upkeep.FullFirst())
	assert.Same(t, more, upkeep.FullFirst(half, more, &inspect.Room{Used: 5, Limit: 1000}), "none grows: the one with the least left")
	assert.Same(t, soon, upkeep.FullFirst(half, later, soon, more))
	assert.Same(t, soon, upkeep.FullFirst(soon, more, later))
}

// TestRoomsAreTold: commands learn how full the queue and Redis are, and will be, from the
// instance that keeps the queue.
func TestRoomsAreTold(t *testing.T) {
	t.Parallel()
	rdb := storetest.Connect(t, testenv.StartRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "noeviction").URL())
	k := newKept(t, storetest.New(t, rdb, 2))
	k.config.Budget.Bytes = 4 << 20
	budget, memory := upkeep.NewBudget(&k.Queue), upkeep.NewMemory(rdb, k.Metrics)
	rooms, producer := upkeep.NewRooms(&k.Queue, budget, memory), client(t, rdb, k.Store)
	memory.Look(t.Context())
	for rooms.Now().Budget == nil || rooms.Now().Budget.FullAt.IsZero() {
		_, err := producer.Schedule(t.Context(), delay.Message{Topic: "t", Body: make([]byte, 1000)}, delay.After(time.Hour))
		require.NoError(t, err)
		require.NoError(t, budget.Turn(t.Context()))
	}
	told := func() inspect.Rooms {
		require.NoError(t, rooms.Turn(t.Context()))
		told, err := inspect.NewAdmin(k.Store).Rooms(t.Context())
		require.NoError(t, err)
		return told
	}
	k.isKeeper.Store(false)
	require.Zero(t, told())
	k.isKeeper.Store(true)
	now := told()
	require.NotNil(t, now.Budget)
	assert.Equal(t, int64(4<<20), now.Budget.Limit)
	assert.Positive(t, now.Budget.Used)
	assert.False(t, now.Budget.FullAt.IsZero())
	require.NotNil(t, now.Redis)
	assert.Equal(t, int64(100<<20), now.Redis.Limit)
}
