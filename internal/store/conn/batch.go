package conn

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/store/scripts"
)

// maxQuietRuns is how many runs go to a node in one pipeline.
const maxQuietRuns = 128

// Batcher sends quiet runs of several queues together: those that renew and
// expect nothing, of which a process makes many at once, in a line a node: see [Lines].
// It is safe for concurrent use.
type Batcher struct {
	rdb   redis.UniversalClient
	lines Lines[*redis.Client, *quietRun]
}

// NewBatcher returns a batcher for queues of that client; it does no I/O. See
// [Conn.SetBatcher].
func NewBatcher(rdb redis.UniversalClient) *Batcher {
	return &Batcher{rdb: rdb}
}

// quietRun is one caller's run.
type quietRun struct {
	script *scripts.Script
	keys   []string
	args   []any

	command scripts.Command
	err     error
}

// RunQuiet is [Conn.Run] for a run that nobody waits for urgently: it may
// share a pipeline with those of other callers. An error of another's run is
// not its error. Where ctx ends, the run may take place yet.
func (c *Conn) RunQuiet(ctx context.Context, s *scripts.Script, keys []string, args ...any) (*redis.Cmd, error) {
	node := c.batcher.node(ctx, keys[0])
	if node == nil {
		return c.Run(ctx, s, keys, args...)
	}
	r := &quietRun{script: s, keys: keys, args: args}
	err := c.batcher.lines.Do(ctx, node, r, mostQuiet, func(batch []*quietRun) { sendQuiet(ctx, node, c.timeout, batch) })
	if err != nil {
		return nil, err
	}
	if redis.HasErrorPrefix(r.err, "MOVED") || redis.HasErrorPrefix(r.err, "ASK") || errors.Is(r.err, redis.ErrClosed) {
		return c.Run(ctx, s, keys, args...) // It did not run there.
	}
	c.Refresh(ctx, r.err)
	return r.command.Cmd, r.err
}

// node is the client of the key's node, nil where runs are not batched.
func (b *Batcher) node(ctx context.Context, key string) *redis.Client {
	if b == nil {
		return nil
	}
	switch rdb := b.rdb.(type) {
	case *redis.Client:
		return rdb
	case *redis.ClusterClient:
		if node, err := rdb.MasterForKey(ctx, key); err == nil {
			return node
		}
	}
	return nil
}

// sendQuiet sends the batch within the sender's deadline; that it was cancelled
// is not the others' concern.
func sendQuiet(ctx context.Context, node *redis.Client, timeout time.Duration, batch []*quietRun) {
	deadline, ok := ctx.Deadline()
	if left := time.Until(deadline); ok && left < timeout {
		timeout = max(left, time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	node = node.WithTimeout(timeout)
	pipeQuiet(ctx, node, false, batch)
	var unknown []*quietRun
	for _, r := range batch {
		if redis.HasErrorPrefix(r.err, "NOSCRIPT") {
			unknown = append(unknown, r)
		}
	}
	if len(unknown) > 0 {
		pipeQuiet(ctx, node, true, unknown)
	}
}

func mostQuiet(waiting []*quietRun) int { return min(len(waiting), maxQuietRuns) }

func pipeQuiet(ctx context.Context, node *redis.Client, bySource bool, runs []*quietRun) {
	pipe := node.Pipeline()
	for _, r := range runs {
		r.command = r.script.Command(ctx, bySource, r.keys, r.args)
		_ = pipe.Process(ctx, r.command)
	}
	_, _ = pipe.Exec(ctx) // Each command has its error.
	for _, r := range runs {
		r.err = r.command.Err()
	}
}
