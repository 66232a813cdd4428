package conn

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// maxQuietRuns is how many runs go to a node in one pipeline.
const maxQuietRuns = 128

// Batcher sends quiet runs of several queues together, with one line per node, see
// [Lines]. A quiet run renews a lease and expects no messages; a process makes many of
// them at once. It is safe for concurrent use.
type Batcher struct {
	rdb   redis.UniversalClient
	lines Lines[*redis.Client, *Trip]
}

// NewBatcher returns a batcher for queues of that client; it does no I/O. See
// [Conn.SetBatcher].
func NewBatcher(rdb redis.UniversalClient) *Batcher {
	return &Batcher{rdb: rdb}
}

// RunQuiet is [Conn.Run] for a run that is not urgent: it may share a pipeline
// with those of other callers. An error of another's run is not its error. If
// ctx ends, the run may still take place.
func (c *Conn) RunQuiet(ctx context.Context, s *scripts.Script, keys []string, args ...any) (*redis.Cmd, error) {
	var node *redis.Client
	if c.batcher != nil {
		node = single(ctx, c.batcher.rdb, keys[0])
	}
	if node == nil {
		return c.Run(ctx, s, keys, args...)
	}
	t := &Trip{Script: s, Keys: keys, Args: args}
	err := c.batcher.lines.Do(ctx, node, t, 1, maxQuietRuns, func(batch []*Trip) { sendQuiet(ctx, node, c.timeout, batch) })
	if err != nil {
		return nil, err
	}
	c.runElsewhere(ctx, t)
	return t.Cmd, t.Err
}

// sendQuiet sends the batch within the sender's deadline; the sender's
// cancellation must not end the others' runs.
func sendQuiet(ctx context.Context, node *redis.Client, timeout time.Duration, batch []*Trip) {
	deadline, ok := ctx.Deadline()
	if left := time.Until(deadline); ok && left < timeout {
		timeout = max(left, time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	pipe(ctx, node.WithTimeout(timeout), batch)
}
