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

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
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

// TestCost keeps what things cost within bounds that do not depend on the machine. It
// must have the process for itself, since it counts allocations.
func TestCost(t *testing.T) {
	l := newLife(t, store.MaxBatch)
	all := l.list
	for _, thing := range []struct {
		name  string
		count float64 // of what is bounded
		do    func()
		most  map[string]float64
	}{
		{"a message from its schedule to its acknowledgement", store.MaxBatch, func() {
			l.schedule()
			claim := l.bridge.claim(store.MaxBatch)
			require.Len(t, claim.Messages, store.MaxBatch)
			l.bridge.settle(claim, acked)
		}, map[string]float64{commands: 0.3, bytesTo: 400, bytesFrom: 380, allocations: 12}},
		{"a message that is scheduled alone", 1, func() {
			l.list = all[:1]
			l.schedule()
			l.list = all
			l.bridge.settle(l.bridge.claim(1), acked)
		}, map[string]float64{commands: 40, bytesTo: 2300, bytesFrom: 700, allocations: 200}},
		{"a look of an idle shard, of which there is one in two seconds", 1, func() {
			require.Empty(t, l.bridge.claim(0).Messages)
		}, map[string]float64{commands: 12, bytesTo: 600, bytesFrom: 200, allocations: 60}},
	} {
		thing.do() // Redis knows the scripts from now on.
		first := l.counted()
		before := l.counted()
		thing.do()
		after := l.counted()
		for what, most := range thing.most {
			counting := before[what] - first[what]
			spent := (float64(after[what]-before[what]) - float64(counting)) / thing.count
			t.Logf("%s: %.2f %s", thing.name, spent, what)
			require.LessOrEqual(t, spent, most, "%s: %s", thing.name, what)
		}
	}
}

// What is counted.
const (
	commands    = "commands, those of scripts included"
	bytesTo     = "bytes to Redis"
	bytesFrom   = "bytes from Redis"
	allocations = "allocations"
)

// counted is what Redis and this process have counted up to now.
func (l *life) counted() map[string]uint64 {
	info := l.rdb.InfoMap(l.tb.Context(), "stats", "commandstats").Val()
	number := func(text string) uint64 {
		n, err := strconv.ParseUint(text, 10, 64)
		require.NoError(l.tb, err)
		return n
	}
	var calls uint64
	for _, stats := range info["Commandstats"] {
		text, _, _ := strings.Cut(strings.TrimPrefix(stats, "calls="), ",")
		calls += number(text)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return map[string]uint64{
		commands:    calls,
		bytesTo:     number(info["Stats"]["total_net_input_bytes"]),
		bytesFrom:   number(info["Stats"]["total_net_output_bytes"]),
		allocations: memory.Mallocs,
	}
}
