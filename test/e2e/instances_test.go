package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/test/flow"
)

// TestInstances runs three bridges under a steady load: one is killed and
// started again, one hangs until the others have its shards, and all are
// restarted one by one. Nothing may be lost, early or wrong.
// It checks I1 and I2.
func TestInstances(t *testing.T) {
	t.Parallel()
	const shards = 8
	w, err := flow.NewWorld(t.Context(), flow.Options{
		Binary: binary, Broker: "nats", Shards: shards, Redis: []string{"--appendonly", "yes"},
	})
	t.Cleanup(w.Close)
	require.NoError(t, err)
	w.Ledger.CountShards(shards)
	bridges := []*flow.Bridge{w.Bridge}
	for range 2 {
		b, err := w.SecondBridge()
		require.NoError(t, err)
		require.NoError(t, b.Start(t.Context()))
		bridges = append(bridges, b)
	}
	stop := w.Consume(t.Context())
	defer func() { assert.NoError(t, stop()) }()

	loading, finish := context.WithCancel(t.Context())
	defer finish()
	steady := flow.Steady{
		Client: w.Client, Topic: w.Topic, Rate: 400, Lead: time.Second, Spread: time.Second, BodySize: 32, Keys: 200,
		Seed: uint64(time.Now().UnixNano()),
	}
	var producer errgroup.Group
	producer.Go(func() error { return steady.Run(loading, w.Ledger) })
	progress := func(after string) {
		since := time.Now()
		require.Eventually(t, func() bool { return w.Ledger.Behind(since) == 0 }, time.Minute, 20*time.Millisecond,
			"after %s, not every shard goes on", after)
	}

	progress("the start")
	require.NoError(t, bridges[0].Kill())
	progress("the kill")
	require.NoError(t, bridges[0].Start(t.Context()))
	progress("the new start")
	require.NoError(t, bridges[1].Pause())
	progress("the pause")
	require.NoError(t, bridges[1].Resume())
	progress("the pause's end")
	faults := time.Now()
	for _, b := range bridges {
		require.NoError(t, b.Stop())
		require.NoError(t, b.Start(t.Context()))
		progress("the restart")
	}
	finish()
	require.NoError(t, producer.Wait())
	w.Ledger.Await(time.Minute, time.Second)

	report, phases := w.Ledger.Report(), w.Ledger.Phases([]flow.Mark{{Name: "restarts", At: faults}})
	assert.Zero(t, phases[0].OutOfOrder, "out of order without a fault")
	checkFaulty(t, w, report)
	require.NoError(t, bridges[2].Stop())
}

// checkFaulty asserts what holds when bridges died: all but the order, and only
// such duplicates as are marked and were reclaimed.
func checkFaulty(t *testing.T, w *flow.World, report flow.Report) {
	t.Helper()
	totals, err := w.Totals(t.Context())
	require.NoError(t, err)
	t.Log(report)
	report.OutOfOrder = 0
	assert.Zero(t, report.Wrong(), "broken promises: %s\n%s", report, w.Bridge.Log())
	assert.Zero(t, report.DuplicatesUnmarked, "copies without a higher attempt")
	assert.LessOrEqual(t, int64(report.Duplicates), totals.Counters["reclaimed"])
	assert.Zero(t, totals.Unbalanced(), "counters: %+v", totals)
	assert.Zero(t, totals.Dead, "dead letters")
	assert.Zero(t, totals.Waiting+totals.InFlight, "left behind")
}
