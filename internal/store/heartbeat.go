package store

import (
	"context"
	"fmt"
	"time"
)

// keepSilent is how long an instance without heartbeats is remembered.
const keepSilent = time.Minute

// Heartbeat says that the instance lives, and returns how many instances have
// said so within the last minute.
func (q *Queue) Heartbeat(ctx context.Context, instance string) (int, error) {
	cmd, err := heartbeatScript.run(ctx, q.client(ctx), []string{instancesKey(q.prefix, q.name)},
		instance, keepSilent.Milliseconds())
	if err != nil {
		return 0, fmt.Errorf("heartbeat: %w", err)
	}
	n, err := cmd.Int()
	return n, err
}

// Leave forgets the instance.
func (q *Queue) Leave(ctx context.Context, instance string) error {
	if err := q.rdb.ZRem(ctx, instancesKey(q.prefix, q.name), instance).Err(); err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	return nil
}
