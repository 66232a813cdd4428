package store_test

import (
	"bytes"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/store"
	"github.com/delaybridge/delaybridge/internal/store/storetest"
)

// life is the messages of a usual size that are scheduled, claimed and settled at
// once, in one shard.
type life struct {
	tb     testing.TB
	rdb    *redis.Client
	q      *store.Queue
	bridge *bridge
	list   []store.Request
}

func newLife(tb testing.TB, n int) *life {
	rdb := connect(tb, testenvPrivate(tb))
	q := storetest.New(tb, rdb, 1)
	l := &life{tb: tb, rdb: rdb, q: q, bridge: newBridge(tb, q), list: make([]store.Request, n)}
	for i := range l.list {
		m := &message.Message{ID: fmt.Sprintf("%026d", i), Topic: "t", Body: bytes.Repeat([]byte("x"), 256)}
		l.list[i] = store.Request{Message: m, When: store.When{Ms: past().Ms + int64(i)}}
	}
	return l
}

func (l *life) schedule() []store.Answer {
	return l.q.Producer().Schedule(l.tb.Context(), l.list, false, store.Durability{})
}

// BenchmarkSchedule tells what a message costs to be scheduled, in batches of 500:
// microseconds of Redis' main thread, and allocations.
func BenchmarkSchedule(b *testing.B) {
	l := newLife(b, store.MaxBatch)
	b.ReportAllocs()
	var spent float64
	for b.Loop() {
		before := busy(b, l.rdb)
		l.schedule()
		spent += (busy(b, l.rdb) - before).Seconds() * 1e6
		b.StopTimer()
		l.bridge.settle(l.bridge.claim(store.MaxBatch), acked)
		b.StartTimer()
	}
	b.ReportMetric(spent/float64(b.N*store.MaxBatch), "µs/message")
}

// BenchmarkClaimSettle tells what a message costs from its claim to its
// acknowledgement, in batches of 500.
func BenchmarkClaimSettle(b *testing.B) {
	l := newLife(b, store.MaxBatch)
	b.ReportAllocs()
	var spent float64
	for b.Loop() {
		b.StopTimer()
		l.schedule()
		b.StartTimer()
		before := busy(b, l.rdb)
		l.bridge.settle(l.bridge.claim(store.MaxBatch), acked)
		spent += (busy(b, l.rdb) - before).Seconds() * 1e6
	}
	b.ReportMetric(spent/float64(b.N*store.MaxBatch), "µs/message")
}

// TestCost keeps what a message costs, from its schedule to its acknowledgement,
// within bounds that do not depend on the machine. It must have the process for
// itself, since it counts allocations.
func TestCost(t *testing.T) {
	l := newLife(t, store.MaxBatch)
	once := func() {
		l.schedule()
		claim := l.bridge.claim(store.MaxBatch)
		require.Len(t, claim.Messages, store.MaxBatch)
		l.bridge.settle(claim, acked)
	}
	once() // Redis knows the scripts from now on.
	before := l.counted()
	once()
	after := l.counted()
	for what, most := range map[string]float64{
		"commands, those of scripts included": 0.3,
		"bytes to Redis":                      480,
		"bytes from Redis":                    420,
		"allocations":                         20,
	} {
		spent := float64(after[what]-before[what]) / store.MaxBatch
		t.Logf("%s: %.2f a message", what, spent)
		require.Less(t, spent, most, "%s a message", what)
	}
}

// counted is what Redis and this process have counted up to now.
func (l *life) counted() map[string]uint64 {
	info := l.rdb.InfoMap(l.tb.Context(), "stats", "commandstats").Val()
	number := func(text string) uint64 {
		n, err := strconv.ParseUint(text, 10, 64)
		require.NoError(l.tb, err)
		return n
	}
	var commands uint64
	for _, stats := range info["Commandstats"] {
		calls, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ",")
		commands += number(calls)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return map[string]uint64{
		"commands, those of scripts included": commands,
		"bytes to Redis":                      number(info["Stats"]["total_net_input_bytes"]),
		"bytes from Redis":                    number(info["Stats"]["total_net_output_bytes"]),
		"allocations":                         memory.Mallocs,
	}
}
