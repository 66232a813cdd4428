package app

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

func TestFullIn(t *testing.T) {
	t.Parallel()
	var g growth
	assert.Nil(t, g.room())
	now := time.Now()
	g.add(now, 1000, 10_000)
	assert.InDelta(t, math.Inf(1), g.fullIn(), 0, "nothing is known yet")
	assert.Equal(t, &inspect.Room{Used: 1000, Limit: 10_000}, g.room())
	g.add(now.Add(10*time.Second), 2000, 10_000)
	assert.InDelta(t, 80, g.fullIn(), 0.1)
	assert.WithinDuration(t, now.Add(90*time.Second), g.room().FullAt, time.Millisecond)
	g.add(now.Add(10*time.Second), 2000, 1<<60)
	assert.Zero(t, g.room().FullAt, "more than a day away")
	g.add(now.Add(10*time.Second), 2000, 2001+int64(growthAhead)*1000)
	assert.Zero(t, g.room().FullAt, "too far away for what was seen")
	g.add(now.Add(10*time.Second), 2000, 2000+int64(growthAhead)*1000)
	assert.Equal(t, now.Add(10*time.Second*(1+growthAhead)), g.room().FullAt)
	g.add(now.Add(15*time.Second), 10_001, 10_000)
	assert.Zero(t, g.fullIn())
	assert.Equal(t, now.Add(15*time.Second), g.room().FullAt, "it is full")
	g.add(now.Add(20*time.Second), 900, 10_000)
	assert.InDelta(t, math.Inf(1), g.fullIn(), 0, "it shrinks")
	for i := range 1000 { // What was long ago does not count.
		g.add(now.Add(time.Minute+time.Duration(i)*time.Second), 900, 10_000)
	}
	assert.LessOrEqual(t, len(g.samples), int(growthOver/growthEvery)+2)
}

// TestOneBurstIsNoTrend: what came once in the last ten minutes, at whatever time of them,
// does not fill the queue; what comes again and again does.
func TestOneBurstIsNoTrend(t *testing.T) {
	t.Parallel()
	const limit, steps = 10_000_000, 60
	now := time.Now()
	after := func(used func(step int) int64) float64 {
		var g growth
		for i := range steps + 1 {
			g.add(now.Add(time.Duration(i)*growthEvery), used(i), limit)
		}
		return g.fullIn()
	}
	for burst := range steps {
		assert.InDelta(t, math.Inf(1), after(func(i int) int64 {
			if i > burst {
				return 400_000
			}
			return 0
		}), 0, "a burst at step %d", burst)
	}
	steady := after(func(i int) int64 { return int64(i) * 10_000 })
	assert.InDelta(t, (limit-steps*10_000)/1000, steady, 1)
	waves := after(func(i int) int64 { return int64(i/6) * 60_000 }) // One a minute, as much.
	assert.InEpsilon(t, steady, waves, 0.1)
}

// TestBudget: producers are refused beyond the budget, and no more when it is gone.
func TestBudget(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testenv.Redis(t), 2)
	f.more = ", budget: {bytes: 64KiB}"
	f.join("a", f.redis)
	f.held(20*time.Second, "a")
	add := func() error {
		_, err := f.client.Schedule(t.Context(), delay.Message{Topic: f.topic, Body: make([]byte, 1000)}, delay.After(time.Hour))
		return err
	}
	var err error
	require.Eventually(t, func() bool { err = add(); return err != nil }, time.Minute, time.Millisecond)
	require.ErrorIs(t, err, delay.ErrFull)
	require.Eventually(t, func() bool { // The room that is left is shared anew each second.
		_ = add()
		return len(f.logs["a"].of("budget is used up")) > 0
	}, time.Minute, 10*time.Millisecond)
	f.leave("a")
	require.ErrorIs(t, add(), delay.ErrFull, "also while no bridge runs")
	f.more = ""
	f.join("b", f.redis)
	require.Eventually(t, func() bool { return add() == nil }, time.Minute, 10*time.Millisecond)
}

// connect opens a client.
func connect(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	rdb, err := NewRedis(parse(t, redisOnly, fmt.Sprintf("{url: %q}", url)).Redis, "test")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	return rdb
}

// TestBudgetIsKnownToAll: an instance that does not keep the queue tells how full it is,
// and limits nobody.
func TestBudgetIsKnownToAll(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testenv.Redis(t))
	queue := storetest.New(t, rdb, 2)
	client, err := delay.NewClient(rdb, queue.Name())
	require.NoError(t, err)
	other := &budget{
		name: queue.Name(), limits: func() config.Budget { return config.Budget{Bytes: 1000} }, admin: inspect.NewAdmin(queue), isKeeper: func() bool { return false },
		metrics: telemetry.New("test"), logger: slog.New(slog.DiscardHandler),
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); other.run(ctx) }()
	require.Eventually(t, func() bool { return other.growth.room() != nil }, time.Minute, 10*time.Millisecond)
	cancel()
	<-ended
	assert.Equal(t, &inspect.Room{Limit: 1000}, other.growth.room())
	_, err = client.Schedule(t.Context(), delay.Message{Topic: "t", Body: make([]byte, 2000)}, delay.After(time.Hour))
	require.NoError(t, err)
	require.NoError(t, other.turn(t.Context(), other.limits(), false))
	assert.Greater(t, other.growth.room().Used, int64(2000))
	_, err = client.Schedule(t.Context(), delay.Message{Topic: "t"}, delay.After(time.Hour))
	require.NoError(t, err)
}

// TestBudgetIsTakenBack by a keeper that has none, and again when it comes back: the keeper
// between may have had one.
func TestBudgetIsTakenBack(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testenv.Redis(t))
	queue := storetest.New(t, rdb, 2)
	client, err := delay.NewClient(rdb, queue.Name())
	require.NoError(t, err)
	add := func() error {
		_, err := client.Schedule(t.Context(), delay.Message{Topic: "t"}, delay.After(time.Hour))
		return err
	}
	turns := make(chan bool) // whether it is the keeper
	mine := &budget{
		name: queue.Name(), limits: func() config.Budget { return config.Budget{} }, admin: inspect.NewAdmin(queue), isKeeper: func() bool { return <-turns },
		metrics: telemetry.New("test"), logger: slog.New(slog.DiscardHandler),
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); mine.run(ctx) }()
	for range 2 {
		_, err = inspect.NewAdmin(queue).Limit(t.Context(), 1)
		require.NoError(t, err)
		require.ErrorIs(t, add(), delay.ErrFull)
		for _, isKeeper := range []bool{false, true, true} { // The third comes when the second is over.
			turns <- isKeeper
		}
		require.NoError(t, add())
	}
	cancel()
	close(turns)
	<-ended
}

// TestMemory: what Redis takes of its maxmemory, where it has one.
func TestMemory(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testenv.StartRedis(t).URL())
	m := newMemory(rdb, telemetry.New(""))
	m.look(t.Context())
	assert.Nil(t, m.room(), "it has none")
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", strconv.Itoa(1<<30)).Err())
	m.look(t.Context())
	require.NotNil(t, m.room())
	assert.Equal(t, int64(1<<30), m.room().Limit)
	assert.Positive(t, m.room().Used)
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	m.look(t.Context())
	assert.WithinDuration(t, time.Now(), m.room().FullAt, time.Minute, "it is full")
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	m.look(t.Context())
	assert.Nil(t, m.room())
}

// TestFullFirst: of several primaries, the one counts that is full first.
func TestFullFirst(t *testing.T) {
	t.Parallel()
	now := time.Now()
	grows := func(used, then int64) *growth {
		g := &growth{}
		g.add(now, used, 1000)
		g.add(now.Add(10*time.Second), then, 1000)
		return g
	}
	m := &memory{nodes: map[string]*growth{"a": grows(500, 500), "b": grows(600, 600), "c": grows(10, 5)}}
	assert.Equal(t, int64(600), m.room().Used, "none grows: the one with the least left")
	m.nodes["d"], m.nodes["e"] = grows(100, 110), grows(100, 200)
	assert.Equal(t, int64(200), m.room().Used)
}

// TestRoomsAreTold: commands learn how full the queue and Redis are, and will be.
func TestRoomsAreTold(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testenv.StartRedis(t, "--maxmemory", "100mb", "--maxmemory-policy", "noeviction").URL(), 2)
	f.more = ", budget: {bytes: 4MiB}"
	f.join("a", f.redis)
	f.held(20*time.Second, "a")
	require.Eventually(t, func() bool {
		_, err := f.client.Schedule(t.Context(), delay.Message{Topic: f.topic, Body: make([]byte, 1000)}, delay.After(time.Hour))
		require.NoError(t, err)
		rooms, err := inspect.NewAdmin(f.queue).Rooms(t.Context())
		require.NoError(t, err)
		return rooms.Budget != nil && !rooms.Budget.FullAt.IsZero() && rooms.Redis != nil
	}, 2*time.Minute, 100*time.Millisecond)
	rooms, err := inspect.NewAdmin(f.queue).Rooms(t.Context())
	require.NoError(t, err)
	assert.Equal(t, int64(4<<20), rooms.Budget.Limit)
	assert.Positive(t, rooms.Budget.Used)
	assert.Equal(t, int64(100<<20), rooms.Redis.Limit)
}
