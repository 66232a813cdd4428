package trial_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/test/trial"
)

// TestSentinelFailover kills the primary under load, after it went on without
// its replicas for a moment: what all replicas had confirmed is there, and what the
// bridge publishes again says so, since a replica had confirmed its claim.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	o := failover(t, failoverCase{mode: "sentinel", queueKeys: "durability: replicas", durable: true, cutOff: 500 * time.Millisecond})
	assert.Zero(t, o.Report.DuplicatesUnmarked, "of %d", o.Report.Duplicates)
}

// TestClusterFailover kills a primary under load, and then migrates a slot.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	failover(t, failoverCase{mode: "cluster", durable: true, then: migrate})
}

// TestFailovers kills the primary with each durability, at once and after it was cut off from
// its replicas. With memory durability what it did then may be lost.
func TestFailovers(t *testing.T) {
	needsFull(t)
	for _, mode := range []string{"sentinel", "cluster"} {
		for durable, name := range map[bool]string{true: "replicas", false: "memory"} {
			for cutOff, how := range map[time.Duration]string{0: "at once", time.Second: "cut off"} {
				t.Run(mode+", "+name+", "+how, func(t *testing.T) { failover(t, failoverCase{mode: mode, durable: durable, cutOff: cutOff}) })
			}
		}
	}
}

// TestMigration moves the slot of shard 0 alone: that is no fault, so nothing comes twice.
func TestMigration(t *testing.T) {
	needsFull(t)
	o := failover(t, failoverCase{mode: "cluster", durable: true, noKill: true, then: migrate})
	assert.Zero(t, o.Report.Duplicates)
}

// migrate moves the slot of shard 0 to another primary. Meanwhile no script runs on that shard.
func migrate(ctx context.Context, w *trial.World) error {
	migration, err := w.Group.Migrate(ctx, w.ShardKey(0))
	if err != nil {
		return err
	}
	_, err = migration.Move(ctx, 2)
	return errors.Join(err, trial.Sleep(ctx, time.Second), migration.Finish(ctx))
}

// failoverCase is how a group of Redis servers fails.
type failoverCase struct {
	mode, queueKeys string
	// durable has producers wait for the replicas.
	durable bool
	cutOff  time.Duration
	noKill  bool
	then    func(context.Context, *trial.World) error
}

// failover runs two bridges while the primary of shard 0 dies and comes back as
// a replica, and then something else happens. Every shard must go on.
func failover(t *testing.T, f failoverCase) *trial.Outcome {
	t.Helper()
	var (
		healed time.Time
		died   trial.Failover
	)
	o, err := trial.Trial{
		Options: trial.Options{Binary: binary, Broker: "nats", Shards: size(4, 8), Mode: f.mode, Copies: true, QueueKeys: f.queueKeys},
		Durable: f.durable, Rate: size(200, 1000), Before: size(time.Second, 5*time.Second), After: size(3*time.Second, 5*time.Second), Impatient: true,
		Happen: func(ctx context.Context, w *trial.World) error {
			if !f.noKill {
				dead, err := w.KillPrimary(ctx, 0, f.cutOff)
				if err != nil {
					return err
				}
				died = *dead
				if err := errors.Join(trial.Sleep(ctx, size(0, 5*time.Second)), dead.Repair(ctx)); err != nil {
					return err
				}
			}
			if f.then != nil {
				if err := f.then(ctx, w); err != nil {
					return err
				}
			}
			healed = time.Now()
			return nil
		},
	}.Run(t.Context())
	require.NoError(t, err)
	if f.noKill {
		died.Killed, died.Writable, died.Known = healed, healed, healed
	}
	resumed := o.Resumed(died.Writable)
	t.Logf("failover in %s, named after %s; the last shard went on %s later, shards stood still for %s, usually %s; longest calls %v",
		died.Writable.Sub(died.Killed), died.Known.Sub(died.Killed), slices.MaxFunc(resumed, time.Time.Compare).Sub(died.Writable), o.Trouble.Gaps, o.Steady.Normal(), o.Longest)
	t.Log(o.Report, o.Answers, o.Totals.Counters)
	if !f.durable { // What it had not replicated is gone, and what had become of it.
		o.Report.Lost, o.Report.CancelledArrived, o.Report.WrongDue = 0, 0, 0
		assert.Zero(t, o.Report.Untruthful, "wrong answers: %s", o.Report.Problems)
		o.Report.Problems = nil
	}
	assert.Zero(t, o.Report.Wrong(), "broken promises: %s\n%s", o.Report, o.Log)
	assert.Zero(t, o.Totals.Unbalanced(), "counters: %+v", o.Totals)
	assert.Zero(t, o.Totals.Dead, "dead letters")
	assert.Positive(t, o.Answers["schedule: done"], "confirmed")
	for shard, at := range o.Resumed(healed) {
		assert.False(t, at.IsZero(), "shard %d does not go on", shard)
	}
	return o
}
