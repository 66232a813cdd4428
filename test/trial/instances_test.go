package trial_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/test/trial"
)

// TestInstances runs three bridges under a steady load: one is killed and
// started again, one hangs until the others have its shards, a fourth joins them,
// and all are restarted one by one. Nothing may be lost, early or wrong.
// It checks I1 and I2, and says how long the worst shard stood still.
func TestInstances(t *testing.T) {
	t.Parallel()
	shards := size(8, 32)
	w := newWorld(t, trial.Options{Shards: shards, Redis: persistent()})
	w.Ledger.CountShards(shards)
	startBridges(t, w, 2)
	consume(t, w)
	loading, finish := context.WithCancel(t.Context())
	defer finish()
	steady := trial.Steady{
		Client: w.Client, Topic: w.Topic, Rate: size(400, 5000), Lead: time.Second, Spread: time.Second, BodySize: 32, Keys: 50 * shards, Seed: *seed,
	}
	var producer errgroup.Group
	producer.Go(func() error { return steady.Run(loading, w.Ledger) })

	var marks []trial.Mark
	step := func(name string, happen func() error) {
		marks = append(marks, trial.Mark{Name: name, At: time.Now()})
		require.NoError(t, happen(), name)
		since := time.Now()
		require.Eventually(t, func() bool { return w.Ledger.Behind(since) == 0 }, time.Minute, 20*time.Millisecond,
			"after %s, not every shard goes on", name)
		require.NoError(t, trial.Sleep(t.Context(), size(0, 10*time.Second))) // What comes of it belongs to it.
	}
	step("start", func() error { return nil })
	step("kill", w.Bridge.Kill)
	step("start again", func() error { return w.Bridge.Start(t.Context()) })
	step("pause", w.Bridges()[1].Pause)
	step("pause's end", w.Bridges()[1].Resume)
	faults := len(marks)
	step("a fourth", func() error { startBridges(t, w, 1); return nil })
	for _, b := range w.Bridges() {
		step("restart", func() error {
			require.NoError(t, b.Stop())
			return b.Start(t.Context())
		})
	}
	finish()
	require.NoError(t, producer.Wait())
	w.Ledger.Await(2*time.Minute, time.Second)

	for i, p := range w.Ledger.Phases(marks) {
		shard, gap := p.Worst()
		t.Logf("%-12s %6d arrived, shard %d stood still for %s, usually %s; late by %s at most, %d twice, %d out of order",
			p.Name, p.Arrived, shard, gap, p.Normal(), p.MaxLateness, p.Duplicates, p.OutOfOrder)
		if i >= faults {
			assert.Zero(t, p.OutOfOrder, "%s: out of order without a fault", p.Name)
		}
		if i == 0 || i > faults && *full {
			assert.Zero(t, p.Duplicates, "%s: duplicates without a fault", p.Name)
		}
	}
	checkFaulty(t, w)
	require.NoError(t, w.Bridges()[2].Stop())
}

// checkFaulty asserts what holds when bridges died: all but the order, and only
// such duplicates as are marked and were reclaimed.
func checkFaulty(t *testing.T, w *trial.World) {
	t.Helper()
	report, totals := ended(t, w)
	report.OutOfOrder = 0
	assertPromises(t, report, totals)
	assert.LessOrEqual(t, int64(report.Duplicates), totals.Counters["reclaimed"])
}
