package inlet_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// BenchmarkInlet has one bridge, a process of its own, take messages of 200 bytes from each broker that
// are all there when it starts. It tells what bridge, Redis and the whole machine have computed for each, since
// the broker shares the machine's cores, which bounds the rate:
//
//	make services && .cache/bin/services -only redis,kafka,rabbitmq,nats go test -run ^$ -bench Inlet -benchtime 100000x ./internal/inlet
func BenchmarkInlet(b *testing.B) {
	for _, name := range []string{"kafka", "rabbitmq", "nats"} {
		b.Run(name, func(b *testing.B) { take(b, brokers[name](b)) })
	}
}

func take(b *testing.B, from broker) {
	b.Helper()
	s := newScene(b, from, testenv.Redis(b), "")
	text, err := os.ReadFile(s.file)
	require.NoError(b, err)
	quiet := strings.NewReplacer("replies: "+from.topic("replies"), "remember: 1m", "level: debug", "level: error").Replace(string(text))
	require.NoError(b, os.WriteFile(s.file, []byte(quiet), 0o600))
	const batch = 500
	for n := 0; n < b.N; n += batch {
		var letters []letter
		for i := n; i < min(n+batch, b.N); i++ {
			id := fmt.Sprintf("i%d", i)
			letters = append(letters, ask(strings.Repeat("x", 200)+id, "delay-id", id, "delay-in", "1h"))
		}
		from.publish(b, letters...)
	}
	cfg, err := config.Load(s.file, nil)
	require.NoError(b, err)
	options, err := redis.ParseURL(testenv.Redis(b))
	require.NoError(b, err)
	rdb := redis.NewClient(options)
	b.Cleanup(func() { _ = rdb.Close() })
	admin := inspect.NewAdmin(store.New(rdb, cfg.Prefix, "orders"))
	waiting := func() int64 {
		stats, err := admin.StatsOfAll(b.Context())
		if err != nil {
			return 0
		}
		sum := stats.Sum()
		return sum.Waiting
	}
	kill := s.start(b)
	b.Cleanup(kill)
	require.Eventually(b, func() bool { return waiting() > 0 }, patience, 5*time.Millisecond)
	began, first, server, machine := time.Now(), waiting(), ofRedis(b, rdb), ofMachine(b)
	require.Eventually(b, func() bool { return waiting() >= int64(b.N) }, time.Hour, 20*time.Millisecond)
	took, taken := time.Since(began), float64(int64(b.N)-first)
	server, machine = ofRedis(b, rdb)-server, ofMachine(b)-machine
	kill()
	own := s.killed.SystemTime() + s.killed.UserTime()
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(taken/took.Seconds(), "messages/s")
	b.ReportMetric(float64(own.Microseconds())/float64(b.N), "µs-bridge/message")
	b.ReportMetric(float64(server.Microseconds())/taken, "µs-redis/message")
	b.ReportMetric(float64(machine.Microseconds())/taken, "µs-machine/message")
}

// ofRedis is the processor time that Redis has used.
func ofRedis(b *testing.B, rdb *redis.Client) (used time.Duration) {
	b.Helper()
	cpu, err := rdb.InfoMap(b.Context(), "cpu").Result()
	require.NoError(b, err)
	for _, part := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(cpu["CPU"][part], 64)
		require.NoError(b, err)
		used += time.Duration(seconds * float64(time.Second))
	}
	return used
}

// ofMachine is the processor time that the whole machine has used: user, nice, system, and interrupts.
func ofMachine(b *testing.B) (used time.Duration) {
	b.Helper()
	text, err := os.ReadFile("/proc/stat")
	require.NoError(b, err)
	for i, field := range strings.Fields(strings.SplitN(string(text), "\n", 2)[0])[1:8] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		require.NoError(b, err)
		if i != 3 && i != 4 { // idle, and waiting for a disk
			used += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return used
}
