package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/test/flow"
)

// neverWaits is more than any machine takes for a transaction; one that waited
// for a relay, or for Redis, would wait as long as Redis hangs.
const (
	neverWaits = 8 * time.Second
	redisHangs = 10 * time.Second
)

// TestOutbox has producers commit and roll back transactions, some of which
// overtake others, and cancel and reschedule what is being loaded, while a
// bridge is killed, Redis hangs and the database dies: what was committed is
// published, what was not is not, the rows tell the truth, and no transaction
// waits for Redis.
func TestOutbox(t *testing.T) {
	t.Parallel()
	for _, database := range []string{"postgres", "mariadb"} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			outboxTrial(t, database)
		})
	}
}

func outboxTrial(t *testing.T, database string) {
	t.Helper()
	trial := flow.OutboxTrial{
		Options: flow.Options{
			Binary: binary, Broker: "nats", Shards: 4, Copies: true, Database: database,
			Redis: []string{"--appendonly", "yes", "--appendfsync", "always"},
		},
		Rate: 100, Spread: 7 * time.Second, Seed: uint64(time.Now().UnixNano()) % 1_000_000,
		Happen: func(ctx context.Context, r *flow.OutboxRun) error {
			r.Phase("steady")
			if err := flow.Sleep(ctx, 2*time.Second); err != nil {
				return err
			}
			r.Phase("hangs")
			if err := r.HangRedis(ctx, redisHangs); err != nil {
				return err
			}
			r.Phase("kills")
			if err := r.World.Bridge.Kill(); err != nil {
				return err
			}
			if err := r.KillDatabase(ctx, 0); err != nil {
				return err
			}
			if err := r.Supervise(ctx, r.World.Bridge); err != nil {
				return err
			}
			return flow.Sleep(ctx, 2*time.Second)
		},
	}
	t.Log("seed", trial.Seed)
	o, err := trial.Run(t.Context())
	require.NoError(t, err)
	t.Logf("%s\n%+v\n%+v", o.Report, o.Tally, o.Phases)
	assert.Zero(t, o.Report.Wrong(), "broken promises: %s\n%s", o.Report, o.Log)
	assert.Zero(t, o.Report.DuplicatesUnmarked, "copies without a higher attempt")
	assert.LessOrEqual(t, int64(o.Report.Duplicates), o.Totals.Counters["suspected_duplicates"])
	assert.Zero(t, o.Totals.Unbalanced(), "counters: %+v", o.Totals)
	assert.Zero(t, o.Totals.Dead, "dead letters")
	assert.Zero(t, o.Tally.Pending+o.Tally.Stored, "rows that nobody finished")
	assert.Positive(t, o.Tally.Committed, "messages")
	assert.Positive(t, o.Tally.RolledBack, "messages that were rolled back")
	assert.Less(t, o.Phases[1].Longest["transaction"], neverWaits, "a transaction while Redis hangs")
	assert.Zero(t, o.Ledger, "settlements that Redis still holds")
}
