package trial_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/test/trial"
)

// neverWaits is more than any machine takes for a transaction; one that waited
// for a relay, or for Redis, would wait as long as Redis hangs.
const neverWaits = 8 * time.Second

// TestOutbox has producers commit and roll back transactions, some of which
// overtake others, and cancel and reschedule what is being loaded, while a
// bridge is killed, Redis hangs and the database dies: what was committed is
// published, what was not is not, the rows tell the truth, and no transaction
// waits for Redis. At full size bridges die all the time, and Redis is dead, too.
func TestOutbox(t *testing.T) {
	t.Parallel()
	for _, database := range []string{"postgres", "mariadb"} {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			o := tryOutbox(t, trial.OutboxTrial{
				// What Redis has answered, it has: a kill takes nothing back.
				Options: trial.Options{Database: database, Redis: persistent("--appendfsync", "always")},
				Rate:    size(100, 200), Spread: size(7*time.Second, 12*time.Second), Happen: outboxTrouble,
			})
			assert.Zero(t, o.Report.Wrong(), "broken promises: %s\n%s", o.Report, o.Log)
			assert.Zero(t, o.Report.DuplicatesUnmarked, "copies without a higher attempt")
			assert.LessOrEqual(t, int64(o.Report.Duplicates), o.Totals.Counters["suspected_duplicates"])
			assert.Zero(t, o.Totals.Unbalanced(), "counters: %+v", o.Totals)
			assert.Positive(t, o.Tally.Committed, "messages")
			assert.Positive(t, o.Tally.RolledBack, "messages that were rolled back")
			for _, p := range o.Phases {
				if p.Name == redisAway {
					assert.Less(t, p.Longest["transaction"], neverWaits, "a transaction while Redis is away")
				}
			}
		})
	}
}

// redisAway are the phases without Redis.
const redisAway = "without Redis"

func outboxTrouble(ctx context.Context, r *trial.OutboxRun) error {
	pause := func() error { return trial.Sleep(ctx, size(2*time.Second, 10*time.Second)) }
	r.Phase("steady")
	if err := pause(); err != nil {
		return err
	}
	away := size(10*time.Second, 20*time.Second)
	hangs := func(ctx context.Context) error { r.Phase(redisAway); return r.HangRedis(ctx, away) }
	if !*full {
		if err := hangs(ctx); err != nil {
			return err
		}
		r.Phase("kills")
		if err := r.World.Bridge.Kill(); err != nil {
			return err
		}
		return errors.Join(r.KillDatabase(ctx, 0), r.Supervise(ctx, r.World.Bridge), pause())
	}
	kills := func(ctx context.Context) error { return r.KillBridges(ctx, 10*time.Second) }
	return trial.While(ctx, kills, func(ctx context.Context) error {
		for _, happen := range []func(context.Context) error{
			hangs,
			func(ctx context.Context) error { r.Phase(redisAway); return r.KillRedis(ctx, away) },
			func(ctx context.Context) error { return r.KillDatabase(ctx, 2*time.Second) },
		} {
			if err := happen(ctx); err != nil {
				return err
			}
			r.Phase("after")
			if err := pause(); err != nil {
				return err
			}
		}
		return nil
	})
}

// tryOutbox runs a trial, and asserts what holds whatever was lost.
func tryOutbox(t *testing.T, try trial.OutboxTrial) *trial.OutboxOutcome {
	t.Helper()
	try.Options.Binary, try.Options.Broker, try.Options.Shards, try.Options.Copies, try.Seed = binary, "nats", 4, true, *seed
	t.Log("seed", try.Seed)
	o, err := try.Run(t.Context())
	require.NoError(t, err)
	slices.SortFunc(o.Incidents, func(a, b trial.Incident) int { return a.From.Compare(b.From) })
	for _, i := range o.Incidents {
		t.Logf("%s %s for %s", i.From.Format("15:04:05.0"), i.Name, i.To.Sub(i.From))
	}
	t.Logf("%s\n%+v\n%+v\n%+v; drained in %s, bridges killed %d times", o.Report, o.Tally, o.Phases, o.Answers, o.Drained, o.Kills)
	assert.Zero(t, o.Totals.Dead, "dead letters")
	assert.Zero(t, o.Tally.Pending+o.Tally.Stored, "rows that nobody finished")
	assert.Zero(t, o.Ledger, "settlements that Redis still holds")
	return o
}

// lost is how much of a database or a Redis is lost where not all is.
const lost = time.Second

// trouble is one thing that goes wrong.
type trouble func(context.Context, *trial.OutboxRun, *rand.Rand) error

// The troubles of all worlds, and of some.
var (
	anywhere = []trouble{
		func(ctx context.Context, r *trial.OutboxRun, _ *rand.Rand) error { return r.LoseRedis(ctx) },
		func(ctx context.Context, r *trial.OutboxRun, _ *rand.Rand) error {
			return errors.Join(r.LoseRedis(ctx), trial.Sleep(ctx, lost), r.LoseRedis(ctx))
		},
		func(ctx context.Context, r *trial.OutboxRun, random *rand.Rand) error {
			return r.LoseShard(ctx, random.IntN(r.World.Shards()))
		},
		func(ctx context.Context, r *trial.OutboxRun, random *rand.Rand) error {
			return r.LoseBodies(ctx, random.IntN(r.World.Shards()), 1)
		},
		func(ctx context.Context, r *trial.OutboxRun, _ *rand.Rand) error { return r.RevertDatabase(ctx, lost) },
		func(ctx context.Context, r *trial.OutboxRun, _ *rand.Rand) error { return r.KillDatabase(ctx, 0) },
	}
	standalone = []trouble{
		func(ctx context.Context, r *trial.OutboxRun, _ *rand.Rand) error { return r.CutPower(ctx, lost) },
		func(ctx context.Context, r *trial.OutboxRun, _ *rand.Rand) error { return r.KillRedis(ctx, 0) },
	}
	sentinel = []trouble{func(ctx context.Context, r *trial.OutboxRun, _ *rand.Rand) error { return r.FailOverRedis(ctx, lost) }}
	cluster  = []trouble{func(ctx context.Context, r *trial.OutboxRun, _ *rand.Rand) error { return r.EmptyNode(ctx) }}
)

// TestChaos runs producers with transactions in several worlds, in which everything dies,
// comes back without what it knew, or as it was a second before. What no incident can have
// caused is a broken promise.
func TestChaos(t *testing.T) {
	needsFull(t)
	everySecond := persistent("--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0") // As most have it, and never rewritten.
	for name, world := range map[string]struct {
		options  trial.Options
		troubles []trouble
	}{
		"standalone": {trial.Options{Database: "postgres", Redis: everySecond}, standalone},
		"sentinel":   {trial.Options{Database: "postgres", Mode: "sentinel"}, sentinel},
		"cluster":    {trial.Options{Database: "postgres", Mode: "cluster"}, cluster},
		"mariadb":    {trial.Options{Database: "mariadb", Redis: everySecond}, standalone},
	} {
		t.Run(name, func(t *testing.T) {
			world.options.Reverts = true
			o := tryOutbox(t, trial.OutboxTrial{
				Options: world.options, Rate: 1000, Spread: 8 * time.Second, // longer than the horizon
				Producers: 30, Limit: 5 * time.Minute, // Claims that nobody settles last a minute.
				Happen: func(ctx context.Context, r *trial.OutboxRun) error {
					return chaos(ctx, r, slices.Concat(anywhere, world.troubles))
				},
			})
			v := o.Verdict
			t.Logf("%d published, %d twice, caught up in %s; allowed: %d unmarked, %d resurrected, %d with a due time taken back",
				v.Published, v.Copies, v.CaughtUp, v.UnmarkedAllowed, v.ResurrectedAllowed, v.WrongDueAllowed)
			v.Published, v.Copies, v.CaughtUp, v.UnmarkedAllowed, v.ResurrectedAllowed, v.WrongDueAllowed = 0, 0, 0, 0, 0, 0
			problems := v.Problems[:min(30, len(v.Problems))]
			v.Problems = nil
			assert.Zero(t, v, "broken promises: %q", problems)
			assert.Empty(t, problems)
			assert.Zero(t, o.Report.Untruthful, "rolled back but arrived")
			assert.Zero(t, o.Report.Unknown, "unknown")
		})
	}
}

// chaos has bridges die and hang all the time, and all troubles happen in a
// random order, the first one within the first second.
func chaos(ctx context.Context, r *trial.OutboxRun, troubles []trouble) error {
	const pause, hang = 10 * time.Second, 8 * time.Second // A bridge hangs for longer than a lease.
	random := rand.New(rand.NewPCG(*seed, 10))            //nolint:gosec // a seed makes the run repeatable
	random.Shuffle(len(troubles), func(i, j int) { troubles[i], troubles[j] = troubles[j], troubles[i] })
	if err := errors.Join(trial.Sleep(ctx, lost/2), r.LoseRedis(ctx)); err != nil {
		return err
	}
	bridges := func(ctx context.Context) error { return r.StopBridges(ctx, 2*pause, hang) }
	return trial.While(ctx, bridges, func(ctx context.Context) error {
		for _, happen := range troubles {
			if err := trial.Sleep(ctx, pause/2+time.Duration(random.Int64N(int64(pause)))); err != nil {
				return err
			}
			if err := happen(ctx, r, random); err != nil {
				return err
			}
		}
		return trial.Sleep(ctx, pause)
	})
}
