package preflight_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/preflight"
)

// TestSilent has servers that take connections and say nothing, and one that is as
// it should be: each is named, none stops the others, and all ends in time.
func TestSilent(t *testing.T) {
	t.Parallel()
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	addr := silent.Addr().String()
	for _, redis := range []string{
		"{url: \"redis://" + addr + "\"}", "{mode: cluster, addrs: [\"" + addr + "\"]}", "{mode: sentinel, master: m, sentinels: [\"" + addr + "\"]}",
	} {
		t.Run(redis, func(t *testing.T) {
			t.Parallel()
			cfg, err := config.Parse(fmt.Appendf(nil, `
redis: %s
queues: {a: {sink: n}, b: {sink: n}, c: {sink: r}}
sinks:
  n: {type: nats, url: "nats://%[2]s"}
  r: {type: rabbitmq, url: "amqp://guest:guest@%[2]s/"}
  k: {type: kafka, brokers: ["%[2]s"]}
outbox:
  pg: {driver: postgres, dsn: "postgres://u:p@%[2]s/db?sslmode=disable"}
  my: {driver: mysql, dsn: "u:p@tcp(%[2]s)/db"}
`, redis, addr), nil)
			require.NoError(t, err)
			flight, err := preflight.New(cfg, []string{"x"})
			require.NoError(t, err)
			defer flight.Close()
			steps, err := flight.Steps()
			require.NoError(t, err)
			began := time.Now()
			for _, result := range check.Run(t.Context(), steps) {
				worst, found := check.Worst(result.Findings)
				if result.Area == "bridge" {
					assert.False(t, found, "%+v", result.Findings)
					continue
				}
				assert.GreaterOrEqual(t, worst, check.Warning, "%s: %+v", result.Subject, result.Findings)
				t.Logf("%-12s %8v %v", result.Subject, result.Took.Round(time.Millisecond), codes(result.Findings))
			}
			assert.Less(t, time.Since(began), check.Limit)
		})
	}
}
