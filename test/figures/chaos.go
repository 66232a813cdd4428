package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/test/flow"
)

const (
	// chaosSpread is the longest delay of a message: longer than the horizon.
	chaosSpread = 8 * time.Second
	// chaosProducers keep the rate though one transaction in ten stays open.
	chaosProducers = 30
	// chaosHang is longer than a lease.
	chaosHang = 8 * time.Second
	// chaosLost is how much of a database or a Redis is lost where not all is.
	chaosLost = time.Second
	// chaosLimit is how long the bridges may take to finish in the end: claims that
	// nobody settles last a minute.
	chaosLimit = 5 * time.Minute
)

// chaosWorld is where things go wrong.
type chaosWorld struct {
	name, database string
	options        flow.Options
	troubles       []trouble
}

// trouble is one thing that goes wrong.
type trouble func(context.Context, *flow.OutboxRun, *rand.Rand) error

// Troubles of all worlds, and of some.
var (
	anywhere = []trouble{
		func(ctx context.Context, t *flow.OutboxRun, _ *rand.Rand) error { return t.LoseRedis(ctx) },
		func(ctx context.Context, t *flow.OutboxRun, _ *rand.Rand) error { return loseTwice(ctx, t) },
		func(ctx context.Context, t *flow.OutboxRun, random *rand.Rand) error {
			return t.LoseShard(ctx, random.IntN(t.World.Shards()))
		},
		func(ctx context.Context, t *flow.OutboxRun, random *rand.Rand) error {
			return t.LoseBodies(ctx, random.IntN(t.World.Shards()), 1)
		},
		func(ctx context.Context, t *flow.OutboxRun, _ *rand.Rand) error {
			return t.RevertDatabase(ctx, chaosLost)
		},
		func(ctx context.Context, t *flow.OutboxRun, _ *rand.Rand) error { return t.KillDatabase(ctx, 0) },
	}
	standalone = append(slices.Clone(anywhere),
		func(ctx context.Context, t *flow.OutboxRun, _ *rand.Rand) error { return t.CutPower(ctx, chaosLost) },
		func(ctx context.Context, t *flow.OutboxRun, _ *rand.Rand) error { return t.KillRedis(ctx, 0) },
	)
	sentinel = append(slices.Clone(anywhere),
		func(ctx context.Context, t *flow.OutboxRun, _ *rand.Rand) error {
			return t.FailOverRedis(ctx, chaosLost)
		})
	cluster = append(slices.Clone(anywhere),
		func(ctx context.Context, t *flow.OutboxRun, _ *rand.Rand) error { return t.EmptyNode(ctx) })
)

// everySecond is a Redis as most have it, whose file is never rewritten.
var everySecond = []string{"--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"}

var chaosWorlds = []chaosWorld{
	{"standalone", "postgres", flow.Options{Redis: everySecond}, standalone},
	{"sentinel", "postgres", flow.Options{Mode: "sentinel"}, sentinel},
	{"cluster", "postgres", flow.Options{Mode: "cluster"}, cluster},
	{"mariadb", "mariadb", flow.Options{Redis: everySecond}, standalone},
}

func loseTwice(ctx context.Context, t *flow.OutboxRun) error {
	return errors.Join(t.LoseRedis(ctx), pause(ctx, chaosLost), t.LoseRedis(ctx))
}

// chaosSum adds up worlds.
type chaosSum struct {
	worlds, transactions, messages, operations int
	verdict                                    flow.Verdict
}

// chaosFigure runs producers with transactions in several worlds, in which
// everything dies, comes back without what it knew, or as it was a second before.
func chaosFigure(ctx context.Context, r run) error {
	fmt.Printf("seed %d\n", r.seed)
	fmt.Printf("chaos  %-10s | %12s %9s %10s %10s | %9s %6s %8s %11s | %4s %5s %11s %8s %8s | %13s %5s %5s | %9s\n", "world", "transactions", "messages", "operations", "taken back",
		"published", "twice", "unmarked", "unexplained", "lost", "early", "resurrected", "wrong d.", "problems", "allowed: unm.", "res.", "due", "caught up")
	var problems []error
	var sum chaosSum
	for _, w := range chaosWorlds {
		if ctx.Err() != nil || !slices.Contains(strings.Split(r.databases, ","), w.database) {
			continue
		}
		if err := r.chaos(ctx, w, &sum); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", w.name, err))
		}
	}
	v := sum.verdict
	fmt.Printf("chaos  sum: %d worlds, %d transactions, %d messages, %d operations; %d published, %d twice, %d lost, %d early, %d resurrected, %d unmarked, %d unexplained\n",
		sum.worlds, sum.transactions, sum.messages, sum.operations, v.Published, v.Copies, v.Lost, v.Early, v.Resurrected, v.Unmarked, v.Unexplained)
	return errors.Join(problems...)
}

// chaos is one world.
func (r run) chaos(ctx context.Context, w chaosWorld, sum *chaosSum) error {
	w.options.Binary, w.options.Broker, w.options.Shards, w.options.Copies = r.binary, r.broker, r.shards, true
	w.options.Database, w.options.Reverts = w.database, true
	o, err := flow.OutboxTrial{
		Options: w.options, Rate: r.rate, Spread: chaosSpread, Seed: r.seed, Producers: chaosProducers, Limit: chaosLimit,
		Happen: func(ctx context.Context, t *flow.OutboxRun) error { return r.chaosTrouble(ctx, t, w.troubles) },
	}.Run(ctx)
	if err != nil {
		return err
	}
	v, tally := o.Verdict, o.Tally
	operations := 0
	for _, n := range tally.Operations {
		operations += n
	}
	fmt.Printf("chaos  %-10s | %12d %9d %10d %10d | %9d %6d %8d %11d | %4d %5d %11d %8d %8d | %13d %5d %5d | %9s\n", w.name, tally.Transactions, tally.Committed, operations, tally.TakenBack,
		v.Published, v.Copies, v.Unmarked, v.Unexplained, v.Lost, v.Early, v.Resurrected, v.WrongDue, len(v.Problems),
		v.UnmarkedAllowed, v.ResurrectedAllowed, v.WrongDueAllowed, ms(v.CaughtUp))
	fmt.Printf("chaos  %-10s   rows: %s\n", w.name, counts(tally.Operations))
	fmt.Printf("chaos  %-10s   %s\n", w.name, incidents(o.Incidents))
	sum.add(o, operations)
	return chaosVerdict(o)
}

// chaosTrouble has bridges die and hang all the time, and all troubles happen in a
// random order, the first one within the first second.
func (r run) chaosTrouble(ctx context.Context, t *flow.OutboxRun, troubles []trouble) error {
	random := rand.New(rand.NewPCG(r.seed, 10)) //nolint:gosec // a seed makes the run repeatable
	order := slices.Clone(troubles)
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	if err := errors.Join(pause(ctx, chaosLost/2), t.LoseRedis(ctx)); err != nil {
		return err
	}
	bridges := func(ctx context.Context) error { return t.StopBridges(ctx, 2*r.pause, chaosHang) }
	return flow.While(ctx, bridges, func(ctx context.Context) error {
		for range r.repeat {
			for _, trouble := range order {
				if err := pause(ctx, r.pause/2+time.Duration(random.Int64N(int64(r.pause)))); err != nil {
					return err
				}
				if err := trouble(ctx, t, random); err != nil {
					return err
				}
			}
		}
		return pause(ctx, r.pause)
	})
}

// incidents says when what went wrong, from the first one on.
func incidents(list []flow.Incident) string {
	slices.SortFunc(list, func(a, b flow.Incident) int { return a.From.Compare(b.From) })
	var parts []string
	for _, i := range list {
		parts = append(parts, fmt.Sprintf("%s %s+%s", i.Name, i.From.Format("15:04:05.0"), i.To.Sub(i.From).Round(100*time.Millisecond)))
	}
	return strings.Join(parts, ", ")
}

func (s *chaosSum) add(o *flow.OutboxOutcome, operations int) {
	s.worlds++
	s.transactions += o.Tally.Transactions
	s.messages += o.Tally.Committed
	s.operations += operations
	v := &s.verdict
	v.Published += o.Verdict.Published
	v.Copies += o.Verdict.Copies
	v.Lost += o.Verdict.Lost
	v.Early += o.Verdict.Early
	v.Resurrected += o.Verdict.Resurrected
	v.Unmarked += o.Verdict.Unmarked
	v.Unexplained += o.Verdict.Unexplained
}

// chaosVerdict says which promises were broken.
func chaosVerdict(o *flow.OutboxOutcome) error {
	var problems []string
	add := func(n int, name string) {
		if n != 0 {
			problems = append(problems, fmt.Sprintf("%d %s", n, name))
		}
	}
	v := o.Verdict
	add(v.Lost, "lost")
	add(v.Early, "early")
	add(v.Resurrected, "resurrected")
	add(v.Unmarked, "copies without a mark")
	add(v.Unexplained, "copies without a reason")
	add(v.WrongDue, "with a wrong due time")
	add(o.Report.Untruthful, "rolled back but arrived")
	add(o.Report.Unknown, "unknown")
	add(o.Tally.Pending, "rows pending")
	add(o.Tally.Stored, "rows stored")
	add(int(o.Totals.Dead), "dead")
	add(int(o.Ledger), "settlements left in Redis")
	add(len(v.Problems), "problems")
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("%s\n  %s", strings.Join(problems, ", "), strings.Join(v.Problems[:min(30, len(v.Problems))], "\n  "))
}
