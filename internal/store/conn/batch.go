package conn

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/store/scripts"
)

// maxQuietRuns is how many runs go to a node in one pipeline.
const maxQuietRuns = 128

// Batcher sends quiet runs of several queues together: those that renew and
// expect nothing, of which a process makes many at once. It groups without
// waiting: a run that finds its node idle leaves at once, and those that come
// until it is answered leave together. One of the callers sends for all; there
// is no goroutine. It is safe for concurrent use.
type Batcher struct {
	rdb redis.UniversalClient

	mu    sync.Mutex
	lines map[*redis.Client][]*quietRun // those that wait; an entry says that one is sending
}

// NewBatcher returns a batcher for queues of that client; it does no I/O. See
// [Conn.SetBatcher].
func NewBatcher(rdb redis.UniversalClient) *Batcher {
	return &Batcher{rdb: rdb, lines: map[*redis.Client][]*quietRun{}}
}

// quietRun is one caller's run.
type quietRun struct {
	script *scripts.Script
	keys   []string
	args   []any

	command scripts.Command
	err     error
	lead    chan struct{} // of 1: "you send now"
	done    chan struct{} // closed when command and err are set
}

// RunQuiet is [Conn.Run] for a run that nobody waits for urgently: it may
// share a pipeline with those of other callers. An error of another's run is
// not its error. Where ctx ends, the run may take place yet.
func (c *Conn) RunQuiet(ctx context.Context, s *scripts.Script, keys []string, args ...any) (*redis.Cmd, error) {
	node := c.batcher.node(ctx, keys[0])
	if node == nil {
		return c.Run(ctx, s, keys, args...)
	}
	r := &quietRun{script: s, keys: keys, args: args, lead: make(chan struct{}, 1), done: make(chan struct{})}
	if err := c.batcher.do(ctx, node, c.timeout, r); err != nil {
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

// do returns when the run is answered or ctx ends.
func (b *Batcher) do(ctx context.Context, node *redis.Client, timeout time.Duration, r *quietRun) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	waiting, busy := b.lines[node]
	b.lines[node] = append(waiting, r)
	b.mu.Unlock()
	if busy {
		select {
		case <-r.done:
			return nil
		case <-r.lead:
		case <-ctx.Done():
			b.abandon(node, r)
			return ctx.Err()
		}
	}
	b.mu.Lock()
	waiting = b.lines[node]
	most := min(len(waiting), maxQuietRuns)
	batch := waiting[:most:most]
	b.lines[node] = waiting[most:]
	b.mu.Unlock()
	defer b.pass(node)
	sendQuiet(ctx, node, timeout, batch)
	return nil
}

// abandon takes a run out that has not been sent.
func (b *Batcher) abandon(node *redis.Client, r *quietRun) {
	b.mu.Lock()
	i := slices.Index(b.lines[node], r)
	if i >= 0 {
		b.lines[node] = slices.Delete(slices.Clone(b.lines[node]), i, i+1)
	}
	b.mu.Unlock()
	select {
	case <-r.lead:
		b.pass(node)
	default:
	}
}

// pass makes the first that waits send, if there is one.
func (b *Batcher) pass(node *redis.Client) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if waiting := b.lines[node]; len(waiting) > 0 {
		waiting[0].lead <- struct{}{}
		return
	}
	delete(b.lines, node)
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
	for _, r := range batch {
		close(r.done)
	}
}

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
