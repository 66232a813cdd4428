package sizing_test

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sizing"
)

// The tolerance: how far Redis may be below what is predicted, and above it. Allocators of other
// builds waste less; a table that is being doubled is there twice.
const below, above = 0.12, 0.05

// TestMemoryOfRedis: what is predicted of Redis' memory is what a real one takes, for small and
// large messages, with and without headers, and for numbers that fill its tables and that just doubled them.
func TestMemoryOfRedis(t *testing.T) {
	t.Parallel()
	const shards = 4
	for _, c := range []struct{ count, id, headers, body int }{
		{30_000, 26, 0, 0},
		{30_000, 26, 0, 256},
		{40_000, 26, 0, 256}, // The tables have doubled not long ago.
		{30_000, 64, 120, 256},
		{20_000, 26, 0, 1500},
		{5_000, 200, 0, 10_000},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			t.Parallel()
			server := testenv.StartRedis(t)
			rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
			t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
			require.NoError(t, delay.EnsureQueue(t.Context(), rdb, "orders", shards))
			client, err := delay.NewClient(rdb, "orders")
			require.NoError(t, err)
			topic := strings.Repeat("t", 20)
			schedule := func(from, count int) {
				requests := make([]delay.Request, count)
				for i := range requests {
					body := make([]byte, c.body)
					_, _ = rand.Read(body) // It never fails.
					m := delay.Message{ID: fmt.Sprintf("%0*d", c.id, from+i), Topic: topic, Body: body}
					if c.headers > 0 {
						m.Headers = map[string]string{"traceparent": strings.Repeat("h", c.headers/2-11), "content-type": strings.Repeat("h", c.headers/2-12)}
					}
					requests[i] = delay.Request{Message: m, When: delay.After(time.Hour + time.Duration(from+i)*time.Millisecond)}
				}
				results, err := client.ScheduleBatch(t.Context(), requests)
				require.NoError(t, err)
				for _, result := range results {
					require.NoError(t, result.Err)
				}
			}
			const batch = 500
			schedule(1_000_000, batch) // Scripts and buffers are there.
			require.NoError(t, client.Cancel(t.Context(), delay.Ref{ID: fmt.Sprintf("%0*d", c.id, 1_000_000)}))
			before := used(t, rdb)
			for from := 0; from < c.count; from += batch {
				schedule(from, batch)
			}
			measured := (used(t, rdb) - before) / float64(c.count)
			plan := sizing.Plan{Rate: 1, Delay: time.Duration(c.count) * time.Second, ID: c.id, Topic: len(topic), Headers: c.headers, Body: c.body, Shards: shards}
			t.Logf("%.1f bytes a message, predicted %.1f", measured, plan.MessageBytes())
			assert.LessOrEqual(t, measured, plan.MessageBytes()*(1+above))
			assert.GreaterOrEqual(t, measured, plan.MessageBytes()*(1-below))
		})
	}
}

// used is Redis' memory without what its clients have.
func used(t *testing.T, rdb *redis.Client) float64 {
	t.Helper()
	text, err := rdb.Info(t.Context(), "memory").Result()
	require.NoError(t, err)
	figures := map[string]float64{}
	for line := range strings.Lines(text) {
		if name, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			figures[name], _ = strconv.ParseFloat(value, 64) // Others are text.
		}
	}
	require.Positive(t, figures["used_memory"])
	return figures["used_memory"] - figures["mem_clients_normal"]
}
