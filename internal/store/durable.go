package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/store/scripts"
)

// Durability asks that a call is confirmed within Timeout: by so many replicas, or,
// with Fsync, by the disk of the primary. Neither is asked where both are zero.
type Durability struct {
	Replicas int
	Fsync    bool
	Timeout  time.Duration
}

func (d Durability) asked() bool { return d.Replicas > 0 || d.Fsync }

// within is how long the confirmation may take: a part of what ctx leaves, so
// that a script that has answered in time is not taken for one that has not.
func (d Durability) within(ctx context.Context) time.Duration {
	wait := d.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)*3/4)
	}
	return max(wait, time.Millisecond) // 0 would be for ever.
}

// confirmed is how many copies there are for certain, and why there are not
// more where the question itself has failed.
type confirmed struct {
	copies int64
	err    error
}

// missing is what a call lacks to be durable, nil if it is.
func (d Durability) missing(c confirmed) error {
	switch {
	case d.Fsync && c.copies > 0, !d.Fsync && c.copies >= int64(d.Replicas):
		return nil
	case c.err != nil:
		return c.err
	case d.Fsync:
		return errNotOnDisk
	}
	return fmt.Errorf("%d of %d replicas did", c.copies, d.Replicas)
}

var errNotOnDisk = errors.New("redis has not written it to disk yet")

// send runs the script, and says what is missing for its effect to be durable.
func (q *Queue) send(ctx context.Context, v *verb, k shardKeys, g *gate, r run, args []any) (*scripts.Reply, error, error) {
	// A second run is made anyway: who refused it could not tell what the first did.
	if v.durable.Fsync && !r.second {
		if err := q.checkFsync(ctx, k.meta); err != nil {
			return nil, nil, err
		}
	}
	within := v.durable.within(ctx)
	last, open := g.opens(within)
	if !open {
		cmd, err := q.run(ctx, v.script, v.keys(k), args...)
		if err != nil {
			return nil, nil, err
		}
		return scripts.NewReply(cmd), v.durable.missing(last), nil
	}
	cmd, c, err := q.runDurable(ctx, v.script, v.durable, within, k.meta, v.keys(k), args...)
	if err != nil {
		return nil, nil, err
	}
	if v.durable.Fsync && c.err != nil {
		q.forgetFsync(ctx, k.meta)
	}
	missing := v.durable.missing(c)
	g.learn(within, c, missing == nil)
	return scripts.NewReply(cmd), missing, nil
}

// known says that a node knows a script.
type known struct {
	node   redis.UniversalClient
	script *scripts.Script
}

// runDurable executes the script and waits so long, on the same connection,
// until what was asked has confirmed it. The anchor is a key of that node with
// the field epoch.
func (q *Queue) runDurable(
	ctx context.Context, s *scripts.Script, d Durability, within time.Duration, anchor string, keys []string, args ...any,
) (*redis.Cmd, confirmed, error) {
	node, err := nodeFor(ctx, q.rdb, keys[0])
	if err != nil {
		return nil, confirmed{}, err
	}
	// The source is sent where the node may not know it: that shows only after the wait.
	at := known{node, s}
	_, bySHA := q.known.Load(at)
	command, c := q.pipeline(ctx, s.Command(ctx, !bySHA, keys, args), node, d, within, anchor)
	if redis.HasErrorPrefix(command.Err(), "NOSCRIPT") {
		command, c = q.pipeline(ctx, s.Command(ctx, true, keys, args), node, d, within, anchor)
	}
	if command.Err() == nil {
		q.known.Store(at, true)
	}
	if node != q.rdb {
		refresh(ctx, q.rdb, command.Err())
		if errors.Is(command.Err(), redis.ErrClosed) {
			return nil, confirmed{}, fmt.Errorf("%w of %s: %w", errNoNode, keys[0], command.Err())
		}
	}
	return command, c, command.Err()
}

func (q *Queue) pipeline(
	ctx context.Context, command scripts.Command, node redis.UniversalClient, d Durability, within time.Duration, anchor string,
) (*redis.Cmd, confirmed) {
	pipe := q.patient(ctx, node, within).Pipeline()
	_ = pipe.Process(ctx, command)
	w := newWaiting(ctx, pipe, d, anchor, within)
	_, err := pipe.Exec(ctx)
	switch {
	case command.Val() != nil:
		command.SetErr(nil) // It has answered; go-redis blames it for what the wait met.
	case command.Err() == nil:
		command.SetErr(err)
	}
	return command.Cmd, w.result()
}

// patient is the node's client with the time for a run and the wait behind it.
func (q *Queue) patient(ctx context.Context, node redis.UniversalClient, within time.Duration) redis.UniversalClient {
	client, ok := node.(*redis.Client)
	if !ok {
		return node
	}
	limit := q.timeout + within
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	return client.WithTimeout(max(limit, time.Millisecond))
}

// waiting is the end of a pipeline that waits.
type waiting struct {
	fsync       bool
	touch, wait scripts.Command
}

func newWaiting(ctx context.Context, pipe redis.Pipeliner, d Durability, anchor string, within time.Duration) *waiting {
	w := &waiting{fsync: d.Fsync, touch: scripts.Touch.Command(ctx, true, []string{anchor}, nil)}
	if d.Fsync {
		w.wait = scripts.NewCommand(ctx, "waitaof", 1, 0, within.Milliseconds())
	} else {
		w.wait = scripts.NewCommand(ctx, "wait", d.Replicas, within.Milliseconds())
	}
	_ = pipe.Process(ctx, w.touch)
	_ = pipe.Process(ctx, w.wait)
	return w
}

func (w *waiting) result() (c confirmed) {
	if err := w.touch.Err(); err != nil {
		return confirmed{err: err} // What was waited for may be nothing.
	}
	if !w.fsync {
		c.copies, c.err = w.wait.Int64()
		return c
	}
	counts, err := w.wait.Int64Slice()
	if err == nil && len(counts) == 0 {
		err = scripts.ErrReply
	}
	if err != nil {
		return confirmed{err: err}
	}
	return confirmed{copies: counts[0]}
}

// checkFsync asks the node, once, whether it can confirm what is on its disk,
// before anything is written. Its error is [ErrNoFsync], or one that says that
// nothing was sent.
func (q *Queue) checkFsync(ctx context.Context, anchor string) error {
	node, err := nodeFor(ctx, q.rdb, anchor)
	if err != nil {
		return err
	}
	if _, ok := q.syncs.Load(node); ok {
		return nil
	}
	pipe := q.client(ctx).Pipeline()
	if node != q.rdb {
		pipe = node.Pipeline()
	}
	w := newWaiting(ctx, pipe, Durability{Fsync: true}, anchor, time.Millisecond)
	_, _ = pipe.Exec(ctx)
	c := w.result()
	var refusal redis.Error
	switch {
	case c.err == nil:
		q.syncs.Store(node, true)
		return nil
	case w.touch.Err() == nil && errors.As(c.err, &refusal):
		return fmt.Errorf("%w: %w", ErrNoFsync, c.err)
	}
	err = fmt.Errorf("%w: %w", errNotSent, c.err)
	refresh(ctx, q.rdb, err)
	return err
}

// forgetFsync has the node asked again: what it could do it can do no more.
func (q *Queue) forgetFsync(ctx context.Context, anchor string) {
	if node, err := nodeFor(ctx, q.rdb, anchor); err == nil {
		q.syncs.Delete(node)
	}
}
