package store

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// Heartbeat is when an instance last said that it lives.
type Heartbeat struct {
	Instance string
	// At is in milliseconds of Redis' clock, which a failover may set back: that
	// it changes tells more than how old it is.
	At int64
}

// Heartbeat says that the instance lives, and returns what all of them have
// said last, the oldest first, this one among them. Who has not said so for
// longer than forgetAfter, by Redis' clock, is forgotten.
func (q *Queue) Heartbeat(ctx context.Context, instance string, forgetAfter time.Duration) ([]Heartbeat, error) {
	cmd, err := q.runQuiet(ctx, heartbeatScript, []string{instancesKey(q.prefix, q.name)},
		instance, forgetAfter.Milliseconds())
	if err != nil {
		return nil, fmt.Errorf("heartbeat: %w", err)
	}
	pairs, err := cmd.StringSlice()
	if err != nil {
		return nil, fmt.Errorf("heartbeat: %w", err)
	}
	all := make([]Heartbeat, len(pairs)/2)
	for i := range all {
		at, err := strconv.ParseFloat(pairs[2*i+1], 64)
		if err != nil {
			return nil, fmt.Errorf("heartbeat of %s: %w", pairs[2*i], err)
		}
		all[i] = Heartbeat{Instance: pairs[2*i], At: int64(at)}
	}
	return all, nil
}

// Leave forgets the instance, and tells the others.
func (q *Queue) Leave(ctx context.Context, instance string) error {
	if _, err := leaveScript.run(ctx, q.client(ctx), []string{instancesKey(q.prefix, q.name)}, instance); err != nil {
		return fmt.Errorf("leave: %w", err)
	}
	return nil
}
