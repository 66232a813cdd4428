package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/store/scripts"
)

// maxEarlier is how many earlier layouts may live: each costs every call a visit more.
const maxEarlier = 8

var (
	// ErrShards is returned for a number of shards that is not from 1 to [MaxShards].
	ErrShards = fmt.Errorf("shards must be from 1 to %d", MaxShards)
	// ErrEarlierLayouts is returned while too many earlier layouts have messages.
	ErrEarlierLayouts = fmt.Errorf("more than %d earlier layouts have messages", maxEarlier)
	errContended      = errors.New("layout is changed by others all the time")
)

// SetShards changes how many shards the queue has, while it is in use. Messages
// stay where they are until they are due; see the package comment. A change that
// somebody else has begun is finished first. Where SetShards fails halfway, the
// change may be finished by others.
func (q *Queue) SetShards(ctx context.Context, shards int) (*Layout, error) {
	if shards < 1 || shards > MaxShards {
		return nil, fmt.Errorf("%w: %d", ErrShards, shards)
	}
	for range 10 {
		layout, err := q.finishChange(ctx)
		if err != nil || layout.Shards == shards {
			return layout, err
		}
		if len(layout.dropping) > 0 {
			if _, err := q.drop(ctx, layout); err != nil {
				return nil, err
			}
			continue
		}
		counter, life := parseEpoch(layout.Epoch)
		next := succeed(newEpoch(counter+1, life), shards, layout.plan())
		if len(next.earlier) > maxEarlier {
			return nil, fmt.Errorf("%w: %v", ErrEarlierLayouts, layout.Earlier)
		}
		if _, err := q.intend(ctx, newCopier(q), layout, next); err != nil {
			return nil, err
		}
		// The next round finishes it, or somebody else's that came first.
	}
	return nil, errContended
}

// finishChange finishes a change that has begun, if there is one: one that the
// layout's key tells of, or one that was forgotten there by a failover, and
// that fences still tell of. It may be called by anybody at any time.
func (q *Queue) finishChange(ctx context.Context) (*Layout, error) {
	c := newCopier(q)
	for range 10 {
		layout, err := q.LoadLayout(ctx)
		if err != nil {
			return nil, err
		}
		next, err := q.findChange(ctx, layout)
		if err != nil || next.epoch == "" {
			return layout, err
		}
		if next.epoch != layout.next.epoch {
			layout, err = q.intend(ctx, c, layout, next)
			if err != nil {
				return nil, err
			}
			if layout.next.epoch != next.epoch {
				continue
			}
		}
		done, err := q.fenceAll(ctx, c, layout)
		if err != nil {
			return nil, err
		}
		if !done {
			continue // A shard knows of a change that this one does not.
		}
		layout, err = q.publish(ctx, c, layout)
		if err != nil || layout.Epoch == next.epoch {
			return layout, err
		}
	}
	return nil, errContended
}

// findChange is the change to be finished: the one that has begun, or, where
// shards know of others, one that follows upon all of them.
func (q *Queue) findChange(ctx context.Context, layout *Layout) (plan, error) {
	fences, err := q.fences(ctx, layout.keys, 0, layout.Polled())
	if err != nil {
		return plan{}, err
	}
	before, next := []plan{layout.plan()}, layout.next
	for _, f := range fences {
		p, ok := parsePlan(f.epoch, f.content)
		if !ok || !ahead(p.epoch, layout.Epoch) || next.epoch != "" && !ahead(p.epoch, next.epoch) {
			continue
		}
		before = append(before, p)
	}
	if len(before) == 1 {
		return next, nil
	}
	last := before[len(before)-1]
	alone := next.epoch == ""
	top, life := parseEpoch(layout.Epoch)
	published := top
	for _, p := range before[1:] {
		counter, _ := parseEpoch(p.epoch)
		alone = alone && p.epoch == last.epoch && counter > published
		top = max(top, counter)
	}
	switch {
	case alone:
		return last, nil
	case next.epoch != "":
		last = next
		before = append(before, next)
	}
	return succeed(newEpoch(top+1, life), last.shards, before...), nil
}

// intend writes down which change begins, unless the layout has changed since
// it was read.
func (q *Queue) intend(ctx context.Context, c *copier, layout *Layout, next plan) (*Layout, error) {
	return c.change(ctx, layout, "next", next.String())
}

// publish makes the change that all shards know the layout in force.
func (q *Queue) publish(ctx context.Context, c *copier, layout *Layout) (*Layout, error) {
	n := layout.next
	return c.change(ctx, layout, "shards", n.shards, "epoch", n.epoch, "earlier", joinInts(n.earlier), "next", "")
}

// fenceAll binds all shards, old and new, to the layout that comes next. It
// reports false where one knows of another change.
func (q *Queue) fenceAll(ctx context.Context, c *copier, layout *Layout) (bool, error) {
	running, ctx := errgroup.WithContext(ctx)
	running.SetLimit(8)
	for _, k := range layout.keys.shards {
		running.Go(func() error {
			r, err := c.run(ctx, scripts.Fence, k.meta, layout.next.epoch, layout.next.content())
			if err != nil {
				return fmt.Errorf("fence: %w", err)
			}
			if epoch := r.Text(1); r.Err != nil || epoch != layout.next.epoch {
				return errors.Join(r.Err, errFenced)
			}
			return nil
		})
	}
	err := running.Wait()
	if errors.Is(err, errFenced) {
		return false, nil
	}
	return err == nil, err
}

var errFenced = errors.New("shard knows another change")

// copier runs scripts and waits until the replicas have their effect too, as far
// as these keep up: else a failover may forget it, and others must repair that.
type copier struct {
	q *Queue

	mu       sync.Mutex
	replicas map[redis.UniversalClient]int
}

func newCopier(q *Queue) *copier {
	return &copier{q: q, replicas: map[redis.UniversalClient]int{}}
}

// change sets fields of the layout's key, unless that has changed since it was
// read, and returns it as it is then.
func (c *copier) change(ctx context.Context, l *Layout, fields ...any) (*Layout, error) {
	args := append([]any{l.Epoch, l.next.String(), joinInts(l.Earlier)}, fields...)
	sentMs := c.q.clock.floorMs()
	r, err := c.run(ctx, scripts.Change, layoutKey(c.q.prefix, c.q.name), args...)
	if err != nil {
		return nil, fmt.Errorf("change layout of %s: %w", c.q.name, err)
	}
	return c.q.useLayout(r, sentMs)
}

func (c *copier) run(ctx context.Context, s *scripts.Script, key string, args ...any) (*scripts.Reply, error) {
	node, _, err := c.q.conn.Node(ctx, key)
	if err != nil {
		return nil, err
	}
	count := c.count(ctx, node)
	if count == 0 {
		cmd, err := c.q.conn.Run(ctx, s, []string{key}, args...)
		if err != nil {
			return nil, err
		}
		return scripts.NewReply(cmd), nil
	}
	wait := Durability{Replicas: count, Timeout: min(time.Second, c.q.conn.Timeout()/2)}
	cmd, copies, err := c.q.conn.RunCopied(ctx, wait, s, key, args...)
	if err != nil {
		return nil, err
	}
	if copies < int64(count) { // The others are not waited for again.
		c.mu.Lock()
		c.replicas[node] = int(copies)
		c.mu.Unlock()
	}
	return scripts.NewReply(cmd), nil
}

// count is how many replicas the node has. Where an ACL hides that, it is how
// many there are that follow soon.
func (c *copier) count(ctx context.Context, node redis.UniversalClient) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, known := c.replicas[node]; known {
		return n
	}
	n := 0
	if info, err := node.Info(ctx, "replication").Result(); err == nil {
		if _, rest, found := strings.Cut(info, "connected_slaves:"); found {
			_, _ = fmt.Sscanf(rest, "%d", &n)
		}
	} else if redis.IsPermissionError(err) {
		const many, soonMs = 1 << 10, 200
		n, _ = node.Do(ctx, "wait", many, soonMs).Int()
	}
	c.replicas[node] = n
	return n
}
