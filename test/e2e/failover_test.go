package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/test/flow"
)

// TestSentinelFailover kills the primary under load, after it went on without
// its replicas for a moment: what all replicas had confirmed is there, and what the
// bridge publishes again says so, since a replica had confirmed its claim.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	o := failover(t, "sentinel", "durability: replicas", 500*time.Millisecond, func(context.Context, *flow.World) error { return nil })
	assert.Zero(t, o.Report.DuplicatesUnmarked, "of %d", o.Report.Duplicates)
}

// TestClusterFailover kills a primary under load, and then migrates a slot.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	failover(t, "cluster", "", 0, func(ctx context.Context, w *flow.World) error {
		migration, err := w.Group.Migrate(ctx, w.ShardKey(0))
		if err != nil {
			return err
		}
		_, err = migration.Move(ctx, 2)
		// Meanwhile no script runs on that shard.
		return errors.Join(err, flow.Sleep(ctx, time.Second), migration.Finish(ctx))
	})
}

// failover runs two bridges while the primary of shard 0 dies and comes back as
// a replica, and then something else happens. Every shard must go on.
func failover(t *testing.T, mode, queueKeys string, cutOff time.Duration, then func(context.Context, *flow.World) error) *flow.Outcome {
	t.Helper()
	var healed time.Time
	o, err := flow.Trial{
		Options: flow.Options{Binary: binary, Broker: "nats", Shards: 4, Mode: mode, Copies: true, QueueKeys: queueKeys},
		Durable: true, Rate: 200, Before: time.Second, After: 3 * time.Second, Impatient: true,
		Happen: func(ctx context.Context, w *flow.World) error {
			f, err := w.KillPrimary(ctx, 0, cutOff)
			if err != nil {
				return err
			}
			err = errors.Join(f.Repair(ctx), then(ctx, w))
			healed = time.Now()
			return err
		},
	}.Run(t.Context())
	require.NoError(t, err)
	t.Log(o.Report, o.Answers)
	assert.Zero(t, o.Report.Wrong(), "broken promises: %s\n%s", o.Report, o.Log)
	assert.Zero(t, o.Totals.Unbalanced(), "counters: %+v", o.Totals)
	assert.Zero(t, o.Totals.Dead, "dead letters")
	assert.Positive(t, o.Answers["schedule: done"], "confirmed")
	for shard, at := range o.Resumed(healed) {
		assert.False(t, at.IsZero(), "shard %d does not go on", shard)
	}
	return o
}
