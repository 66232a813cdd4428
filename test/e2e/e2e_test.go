// Package e2e runs the bridge as a process between a real Redis and each real
// broker, at a small size; test/figures does the same at full size.
package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/test/flow"
)

// binary is the bridge under test.
var binary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "delaybridge-e2e-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		binary, err = flow.Build(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func newWorld(t *testing.T, broker string) *flow.World {
	t.Helper()
	w, err := flow.NewWorld(t.Context(), flow.Options{
		Binary: binary, Broker: broker, Shards: 4, Redis: []string{"--appendonly", "yes"},
	})
	t.Cleanup(w.Close)
	require.NoError(t, err)
	return w
}

// check asserts every promise of the ledger and the counters.
func check(t *testing.T, w *flow.World) (flow.Report, flow.Totals) {
	t.Helper()
	report := w.Ledger.Report()
	totals, err := w.Totals(t.Context())
	require.NoError(t, err)
	t.Log(report)
	assert.Zero(t, report.Wrong(), "broken promises: %s\n%s", report, w.Bridge.Log())
	assert.Zero(t, report.DuplicatesUnmarked, "copies without a higher attempt")
	assert.Zero(t, totals.Unbalanced(), "counters: %+v", totals)
	assert.Zero(t, totals.Dead, "dead letters")
	assert.Zero(t, totals.Waiting+totals.InFlight, "left behind")
	return report, totals
}

func load(w *flow.World, count int, window time.Duration) flow.Load {
	return flow.Load{
		Client: w.Client, Topic: w.Topic, Count: count, Lead: 2 * time.Second, Window: window,
		BodySize: 256, Keys: 50, Seed: uint64(time.Now().UnixNano()),
	}
}

// TestFlow sends messages the whole way to each broker, cancels some and
// reschedules some, races cancels against due times, and kills the bridge.
// The ledger checks I1, I2 and I3, the counters I6.
func TestFlow(t *testing.T) {
	t.Parallel()
	for _, broker := range []string{"nats", "rabbitmq", "kafka"} {
		t.Run(broker, func(t *testing.T) {
			w := newWorld(t, broker)
			stop := w.Consume(t.Context())
			defer func() { assert.NoError(t, stop()) }()
			require.NoError(t, load(w, 2000, 4*time.Second).Run(t.Context(), w.Ledger))
			w.Ledger.Await(time.Minute, time.Second)
			report, _ := check(t, w)
			assert.Zero(t, report.Duplicates)

			for _, cancel := range []bool{true, false} {
				racing := load(w, 500, 2*time.Second)
				racing.IDs = fmt.Sprintf("race-%t-", cancel)
				require.NoError(t, flow.Race(t.Context(), racing, cancel, w.Ledger, nil))
				w.Ledger.Await(time.Minute, 2*time.Second)
			}
			report, _ = check(t, w)
			assert.Zero(t, report.Duplicates)

			killed := load(w, 1000, 4*time.Second)
			killed.IDs = "kill-"
			require.NoError(t, killed.Run(t.Context(), w.Ledger))
			require.Eventually(t, func() bool { return w.Ledger.Missing() < 700 }, time.Minute, 5*time.Millisecond)
			require.NoError(t, w.Bridge.Kill())
			require.NoError(t, w.Bridge.Start(t.Context()))
			w.Ledger.Await(time.Minute, time.Second)
			report, totals := check(t, w)
			assert.LessOrEqual(t, int64(report.Duplicates), totals.Counters["reclaimed"])
			require.NoError(t, w.Bridge.Stop())
			require.FileExists(t, filepath.Join(w.Dir, "bridge.log"))
		})
	}
}

// TestTwoInstances starts a second bridge by mistake: it must change nothing,
// and take over when the first one dies.
func TestTwoInstances(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "nats")
	stop := w.Consume(t.Context())
	defer func() { assert.NoError(t, stop()) }()
	second, err := w.SecondBridge()
	require.NoError(t, err)
	require.NoError(t, second.Start(t.Context()))
	defer func() { assert.NoError(t, second.Stop()) }()
	require.NoError(t, load(w, 2000, 4*time.Second).Run(t.Context(), w.Ledger))
	w.Ledger.Await(time.Minute, time.Second)
	report, _ := check(t, w)
	assert.Zero(t, report.Duplicates)
	require.NoError(t, w.Bridge.Kill())
	result, err := w.Client.Schedule(t.Context(), delay.Message{ID: "after", Topic: w.Topic}, delay.After(0))
	require.NoError(t, err)
	w.Ledger.Scheduled(delay.Message{ID: "after", Topic: w.Topic}, result)
	w.Ledger.Await(time.Minute, time.Second)
	check(t, w)
}
