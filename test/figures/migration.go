package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/test/flow"
)

// migration moves the slot of shard 0 to another primary, key by key, with a
// pause in between, while all shards are loaded.
func (r run) migration(ctx context.Context) error {
	const steps, hold = 4, 500 * time.Millisecond
	var begun, done time.Time
	keys := 0
	trial := r.trial("cluster", true)
	trial.Happen = func(ctx context.Context, w *flow.World) error {
		begun = time.Now()
		moving, err := w.Group.Migrate(ctx, w.ShardKey(0))
		if err != nil {
			return err
		}
		for range steps {
			if err := pause(ctx, hold); err != nil {
				return err
			}
			moved, err := moving.Move(ctx, 1)
			if err != nil {
				return err
			}
			keys += moved
		}
		err = moving.Finish(ctx)
		done = time.Now()
		return err
	}
	o, err := trial.Run(ctx)
	if err != nil {
		return fmt.Errorf("migration: %w", err)
	}
	gaps, resumed := o.Trouble.Gaps, o.Resumed(done)
	others := slices.Max(gaps[1:])
	fmt.Printf("%-9s %-6s %-18s | %8s %12s %12s | %12s %12s | %22s | %8s %5s %5s %5s %5s\n", "migration", "broker", "keys moved apart",
		"took", "shard stood", "went on", "others stood", "steady", "longest call", "accepted", "lost", "twice", "early", "wrong")
	fmt.Printf("%-9s %-6s %-18d | %8s %12s %+12s | %12s %12s | %22s | %8d %5d %5d %5d %5d\n", "migration", r.broker, keys,
		ms(done.Sub(begun)), ms(gaps[0]), ms(resumed[0].Sub(done)), ms(others), ms(slices.Max(o.Steady.Gaps)),
		fmt.Sprint(o.Verb, " ", ms(o.Longest)), o.Report.Scheduled, o.Report.Lost, o.Report.Duplicates, o.Report.Early, wrong(o, true))
	printAnswers("migration", o)
	var twice error
	if o.Report.Duplicates > 0 {
		twice = fmt.Errorf("migration: %d duplicates without a fault", o.Report.Duplicates)
	}
	return errors.Join(broken("migration", o, true), twice)
}
