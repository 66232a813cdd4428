package inlet_test

import (
	"fmt"
	"os"
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

// measure names how many messages TestRate publishes; without it the test is skipped.
const measure = "DELAYBRIDGE_INLET_MESSAGES"

// TestRate tells how many messages a second one bridge, a process of its own, takes from each broker
// that are all there when it starts.
func TestRate(t *testing.T) {
	var messages int
	if _, err := fmt.Sscan(os.Getenv(measure), &messages); err != nil {
		t.Skip("set " + measure)
	}
	for _, name := range []string{"kafka", "rabbitmq", "nats"} {
		t.Run(name, func(t *testing.T) {
			b := brokers[name](t)
			s := newScene(t, b, testenv.Redis(t), "")
			text, err := os.ReadFile(s.file)
			require.NoError(t, err)
			quiet := strings.NewReplacer("replies: "+b.topic("replies"), "remember: 1m", "level: debug", "level: info").Replace(string(text))
			require.NoError(t, os.WriteFile(s.file, []byte(quiet), 0o600))
			const batch = 500
			for n := 0; n < messages; n += batch {
				var letters []letter
				for i := n; i < n+batch; i++ {
					id := fmt.Sprintf("i%d", i)
					letters = append(letters, ask(strings.Repeat("x", 200)+id, "delay-id", id, "delay-in", "1h"))
				}
				b.publish(t, letters...)
			}
			cfg, err := config.Load(s.file, nil)
			require.NoError(t, err)
			options, err := redis.ParseURL(testenv.Redis(t))
			require.NoError(t, err)
			rdb := redis.NewClient(options)
			defer func() { _ = rdb.Close() }()
			admin := inspect.NewAdmin(store.New(rdb, cfg.Prefix, "orders"))
			waiting := func() int64 {
				stats, err := admin.StatsOfAll(t.Context())
				if err != nil {
					return 0
				}
				sum := stats.Sum()
				return sum.Waiting
			}
			kill := s.start(t)
			defer kill()
			require.Eventually(t, func() bool { return waiting() > 0 }, patience, 5*time.Millisecond)
			began, from := time.Now(), waiting()
			require.Eventually(t, func() bool { return waiting() >= int64(messages) }, time.Hour, 20*time.Millisecond)
			took := time.Since(began)
			kill()
			used := s.killed.SystemTime() + s.killed.UserTime()
			t.Logf("%s: %d messages in %s, %.0f/s; the bridge's CPU for all %d: %s, %.1f µs each", name, int64(messages)-from,
				took.Round(time.Millisecond), float64(int64(messages)-from)/took.Seconds(), messages, used.Round(time.Millisecond), float64(used.Microseconds())/float64(messages))
		})
	}
}
