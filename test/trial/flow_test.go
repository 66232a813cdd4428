// The tests of this package are the trials: each begins a world, has something go wrong in it,
// and judges what arrived. They are small as they come. With -full they run at full size, those
// that are skipped otherwise too, and print what they measure:
//
//	go test ./test/trial -count=1 -v -timeout=1h -run 'TestFlow/kafka|TestInstances' -full
package trial_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/test/trial"
)

// binary is the bridge under test.
var binary string

var (
	full = flag.Bool("full", false, "run at full size, also those trials that take long")
	seed = flag.Uint64("seed", rand.Uint64N(1_000_000), "makes what producers do repeatable") //nolint:gosec // any seed will do
)

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "delaybridge-trial-")
	if err == nil {
		binary, err = trial.Build(context.Background(), dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"), goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// size is the full one with -full.
func size[T any](small, large T) T {
	if *full {
		return large
	}
	return small
}

// needsFull is for trials that take minutes.
func needsFull(t *testing.T) {
	t.Helper()
	if !*full {
		t.Skip("runs with -full only")
	}
}

// persistent is a Redis that writes what it has into a file.
func persistent(more ...string) []string { return append([]string{"--appendonly", "yes"}, more...) }

func newWorld(t *testing.T, o trial.Options) *trial.World {
	t.Helper()
	o.Binary, o.Broker, o.Shards = cmp.Or(o.Binary, binary), cmp.Or(o.Broker, "nats"), cmp.Or(o.Shards, 4)
	w, err := trial.NewWorld(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("seed", *seed, w.Bridge.Log())
		}
		w.Close()
	})
	return w
}

// startBridges starts bridges beside the world's own.
func startBridges(t *testing.T, w *trial.World, count int) []*trial.Bridge {
	t.Helper()
	for range count {
		b, err := w.SecondBridge(t.Context())
		require.NoError(t, err)
		require.NoError(t, b.Start(t.Context()))
	}
	return w.Bridges()
}

// consume feeds the world's ledger until the test ends.
func consume(t *testing.T, w *trial.World) {
	t.Helper()
	stop := w.Consume(t.Context())
	t.Cleanup(func() { assert.NoError(t, stop()) })
}

// ended is what the ledger and the counters say when nothing is left to be done.
func ended(t *testing.T, w *trial.World) (trial.Report, trial.Totals) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	_, err := w.Drained(ctx) // What has arrived is settled a moment later.
	assert.NoError(t, err, "left behind")
	report := w.Ledger.Report()
	totals, err := w.Totals(t.Context())
	require.NoError(t, err)
	t.Log(report)
	return report, totals
}

// assertPromises asserts every promise of a report and the counters.
func assertPromises(t *testing.T, report trial.Report, totals trial.Totals) {
	t.Helper()
	assert.Zero(t, report.Wrong(), "broken promises: %s", report)
	assert.Zero(t, report.DuplicatesUnmarked, "copies without a higher attempt")
	assert.Zero(t, totals.Unbalanced(), "counters: %+v", totals)
	assert.Zero(t, totals.Dead, "dead letters")
}

func check(t *testing.T, w *trial.World) (trial.Report, trial.Totals) {
	t.Helper()
	report, totals := ended(t, w)
	assertPromises(t, report, totals)
	return report, totals
}

func load(w *trial.World, ids string, count int, window time.Duration) trial.Load {
	return trial.Load{
		Client: w.Client, Topic: w.Topic, Count: count, Lead: size(2*time.Second, 3*time.Second), Window: window,
		BodySize: 256, Keys: size(50, 500), Seed: *seed, IDs: ids,
	}
}

// TestFlow sends messages the whole way to each broker, cancels some and
// reschedules some, races cancels against due times, and kills the bridge.
// The ledger checks I1, I2 and I3, the counters I6.
func TestFlow(t *testing.T) {
	t.Parallel()
	brokers := []string{"nats", "rabbitmq", "kafka", "redis"}
	for _, broker := range size(brokers, append(brokers, "sqs", "pubsub")) {
		t.Run(broker, func(t *testing.T) {
			w := newWorld(t, trial.Options{Broker: broker, Shards: size(4, 8), Redis: persistent()})
			consume(t, w)
			window := size(4*time.Second, 20*time.Second)
			require.NoError(t, load(w, "", size(2000, 20_000), window).Run(t.Context(), w.Ledger))
			w.Ledger.Await(window+2*time.Minute, time.Second)
			report, _ := check(t, w)
			assert.Zero(t, report.Duplicates)

			calls := &trial.Calls{}
			for _, cancel := range []bool{true, false} {
				racing := load(w, fmt.Sprintf("race-%t-", cancel), size(500, 20_000), size(2*time.Second, 20*time.Second))
				require.NoError(t, trial.Race(t.Context(), racing, cancel, w.Ledger, calls))
				w.Ledger.Await(2*time.Minute, 2*time.Second)
			}
			t.Log(calls.Counts)
			report, _ = check(t, w)
			assert.Zero(t, report.Duplicates)

			count, kills := size(1000, 20_000), size(1, 5)
			require.NoError(t, load(w, "kill-", count, window).Run(t.Context(), w.Ledger))
			for kill := range kills {
				require.Eventually(t, func() bool { return w.Ledger.Missing() < count*7/10*(kills-kill)/kills }, time.Minute, 5*time.Millisecond)
				require.NoError(t, w.Bridge.Kill())
				require.NoError(t, w.Bridge.Start(t.Context()))
			}
			w.Ledger.Await(window+2*time.Minute, time.Second)
			report, totals := check(t, w)
			assert.LessOrEqual(t, int64(report.Duplicates), totals.Counters["reclaimed"])
			require.NoError(t, w.Bridge.Stop())
			require.FileExists(t, filepath.Join(w.Dir, "bridge.log"))
		})
	}
}

// TestOutage takes the broker away for half a minute, and meanwhile kills Redis. It checks
// I1 to I3, and shows I9.
func TestOutage(t *testing.T) {
	needsFull(t)
	t.Parallel()
	for _, broker := range []string{"nats", "rabbitmq", "kafka", "redis"} {
		t.Run(broker, func(t *testing.T) {
			w := newWorld(t, trial.Options{Broker: broker, Shards: 8, Redis: persistent("--appendfsync", "always")})
			consume(t, w)
			require.NoError(t, load(w, "", 20_000, time.Minute).Run(t.Context(), w.Ledger))
			require.NoError(t, trial.Sleep(t.Context(), 10*time.Second))
			before := w.Bridge.ResidentBytes()
			require.NoError(t, w.Broker.Server().Stop())
			require.NoError(t, trial.Sleep(t.Context(), 15*time.Second))
			require.NoError(t, w.Redis.Kill())
			require.NoError(t, w.Redis.Start(t.Context()))
			require.NoError(t, trial.Sleep(t.Context(), 15*time.Second))
			t.Logf("resident before %d MiB, at the end of the outage %d MiB", before>>20, w.Bridge.ResidentBytes()>>20)
			require.NoError(t, w.Broker.Server().Start(t.Context()))
			w.Ledger.Await(3*time.Minute, 2*time.Second)
			report, totals := check(t, w)
			assert.LessOrEqual(t, int64(report.Duplicates), totals.Counters["suspected_duplicates"])
		})
	}
}
