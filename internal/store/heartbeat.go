package store

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Heartbeat says that the instance lives, and returns those that do, sorted,
// this one among them: those that were heard within deadAfter, by Redis' clock.
func (q *Queue) Heartbeat(ctx context.Context, instance string, deadAfter time.Duration) ([]string, error) {
	cmd, err := q.runQuiet(ctx, heartbeatScript, []string{instancesKey(q.prefix, q.name)},
		instance, deadAfter.Milliseconds())
	if err != nil {
		return nil, fmt.Errorf("heartbeat: %w", err)
	}
	live, err := cmd.StringSlice()
	slices.Sort(live)
	return live, err
}

// Leave forgets the instance, and tells the others.
func (q *Queue) Leave(ctx context.Context, instance string) error {
	if _, err := leaveScript.run(ctx, q.client(ctx), []string{instancesKey(q.prefix, q.name)}, instance); err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	return nil
}
