package layout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// maxEarlier is how many earlier layouts may live: each costs every call one more visit.
const maxEarlier = 8

var (
	// ErrEarlierLayouts is returned while too many earlier layouts have messages.
	ErrEarlierLayouts = fmt.Errorf("more than %d earlier layouts have messages", maxEarlier)
	errContended      = errors.New("layout is changed by others all the time")
)

// SetShards changes the number of shards of a queue in use. Messages stay where
// they are until they are due; see the package comment. It first finishes a
// change that somebody else has begun. If SetShards fails halfway, others may
// finish the change.
func (g *Registry) SetShards(ctx context.Context, shards int) (*Layout, error) {
	if shards < 1 || shards > MaxShards {
		return nil, fmt.Errorf("%w: %d", ErrShards, shards)
	}
	for range 10 {
		layout, err := g.finish(ctx)
		if err != nil || layout.Shards == shards {
			return layout, err
		}
		if len(layout.dropping) > 0 {
			if _, err := g.drop(ctx, layout); err != nil {
				return nil, err
			}
			continue
		}
		next := succeed(NextEpoch(layout.Epoch), shards, layout.plan())
		if len(next.earlier) > maxEarlier {
			return nil, fmt.Errorf("%w: %v", ErrEarlierLayouts, layout.Earlier)
		}
		if _, err := newWriter(g).intend(ctx, layout, next); err != nil {
			return nil, err
		}
		// The next round finishes this change, or another one that came first.
	}
	return nil, errContended
}

// finish finishes a change that has begun, if there is one: the layout's key
// has it, or a failover has lost it there and fences still have it. Anybody may
// call it at any time.
func (g *Registry) finish(ctx context.Context) (*Layout, error) {
	w := newWriter(g)
	for range 10 {
		layout, err := g.Load(ctx)
		if err != nil {
			return nil, err
		}
		next, err := g.findNext(ctx, layout)
		if next.epoch != "" && layout.next.epoch == "" && next.content() == layout.plan().content() {
			// Shards were lost, see remake; unreachable shards do not matter.
			layout, err = w.renew(ctx, layout, next.epoch)
			if err != nil || layout.Epoch == next.epoch {
				return layout, err
			}
			continue
		}
		if err != nil || next.epoch == "" {
			return layout, err
		}
		if next.epoch != layout.next.epoch {
			layout, err = w.intend(ctx, layout, next)
			if err != nil {
				return nil, err
			}
			if layout.next.epoch != next.epoch {
				continue
			}
		}
		done, err := w.fenceAll(ctx, layout)
		if err != nil {
			return nil, err
		}
		if !done {
			continue // A shard knows a change that this call does not.
		}
		layout, err = w.publish(ctx, layout)
		if err != nil || layout.Epoch == next.epoch {
			return layout, err
		}
	}
	return nil, errContended
}

// findNext returns the change to finish: the one that has begun, or, if shards
// know of others, one that succeeds all of them. With an error some shards were
// not asked.
func (g *Registry) findNext(ctx context.Context, layout *Layout) (plan, error) {
	fences, err := g.fences(ctx, layout.keys, 0, layout.Polled())
	before, next := []plan{layout.plan()}, layout.next
	for _, f := range fences {
		p, ok := parsePlan(f.epoch, f.content)
		if !ok || !ahead(p.epoch, layout.Epoch) || next.epoch != "" && !ahead(p.epoch, next.epoch) {
			continue
		}
		before = append(before, p)
	}
	if len(before) == 1 {
		return next, err
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
		return last, err
	case next.epoch != "":
		last = next
		before = append(before, next)
	}
	return succeed(newEpoch(top+1, life), last.shards, before...), err
}

// forget ends the earlier layouts. In the same step it saves the counters of
// the shards that go with them, so a repetition finds that it was done.
func (g *Registry) forget(ctx context.Context, layout *Layout) error {
	fields := []any{"earlier", ""}
	if polled := layout.Polled(); polled > layout.Shards {
		total, dropping := maps.Clone(layout.Retired), []int(nil) // Others read the layout's map.
		for shard := layout.Shards; shard < polled; shard++ {
			meta, err := g.conn.Client(ctx).HGetAll(ctx, layout.keys[shard].Meta).Result()
			if err != nil {
				return fmt.Errorf("read counters of shard %d of %s: %w", shard, g.queue.Name, err)
			}
			for name, value := range meta {
				if n, err := strconv.ParseInt(value, 10, 64); err == nil && name != BornField {
					total[name] += n
				}
			}
			dropping = append(dropping, shard)
		}
		var retired []string
		for name, n := range total {
			retired = append(retired, fmt.Sprintf("%s=%d", name, n))
		}
		fields = append(fields, "retired", strings.Join(retired, " "), "dropping", joinInts(dropping))
	}
	layout, err := newWriter(g).set(ctx, layout, fields...)
	if err != nil || len(layout.dropping) == 0 {
		return err
	}
	_, err = g.drop(ctx, layout)
	return err
}

// drop deletes the shards that no layout has any longer.
func (g *Registry) drop(ctx context.Context, layout *Layout) (*Layout, error) {
	for _, shard := range layout.dropping {
		if shard < layout.Polled() {
			continue
		}
		k := g.queue.Shard(shard)
		ended, ends := k.History()
		_, err := g.conn.Run(ctx, scripts.Drop, []string{
			k.Meta, k.Msg, k.Dead, k.Claims, k.Settled, k.Due, k.Deadlines, k.Attempts, k.Gone, k.GoneTTL, k.DeadMsg, k.Holder,
			k.Routes, k.Tags, ended, ends,
		})
		if err != nil {
			return nil, fmt.Errorf("drop shard %d of %s: %w", shard, g.queue.Name, err)
		}
	}
	return newWriter(g).set(ctx, layout, "dropping", "")
}

// writer runs scripts and waits for the replicas, as far as they keep up.
// Otherwise a failover may lose the write, and others must repair that.
type writer struct {
	*Registry

	mu       sync.Mutex
	replicas map[redis.UniversalClient]int
}

func newWriter(g *Registry) *writer {
	return &writer{Registry: g, replicas: map[redis.UniversalClient]int{}}
}

// set sets fields of the layout's key, unless it has changed since it was read,
// and returns the layout as it is then.
func (w *writer) set(ctx context.Context, l *Layout, fields ...any) (*Layout, error) {
	args := append([]any{l.Epoch, l.next.String(), joinInts(l.Earlier)}, fields...)
	sentMs := w.clock.FloorMs()
	r, err := w.run(ctx, scripts.Change, w.queue.Layout(), args...)
	if err != nil {
		return nil, fmt.Errorf("change layout of %s: %w", w.queue.Name, err)
	}
	return w.use(r, sentMs)
}

func (w *writer) run(ctx context.Context, s *scripts.Script, key string, args ...any) (*scripts.Reply, error) {
	node, _, err := w.conn.Node(ctx, key)
	if err != nil {
		return nil, err
	}
	count := w.count(ctx, node)
	if count == 0 {
		cmd, err := w.conn.Run(ctx, s, []string{key}, args...)
		if err != nil {
			return nil, err
		}
		return scripts.NewReply(cmd), nil
	}
	wait := conn.Durability{Replicas: count, Timeout: min(time.Second, w.conn.Timeout()/2)}
	cmd, copies, err := w.conn.RunCopied(ctx, wait, s, key, args...)
	if err != nil {
		return nil, err
	}
	if copies < int64(count) { // Do not wait for the others again.
		w.mu.Lock()
		w.replicas[node] = int(copies)
		w.mu.Unlock()
	}
	return scripts.NewReply(cmd), nil
}

// count returns how many replicas the node has. If an ACL hides that, it
// returns how many confirm soon.
func (w *writer) count(ctx context.Context, node redis.UniversalClient) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n, known := w.replicas[node]; known {
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
	w.replicas[node] = n
	return n
}

// intend records which change begins, unless the layout has changed since it
// was read.
func (w *writer) intend(ctx context.Context, layout *Layout, next plan) (*Layout, error) {
	return w.set(ctx, layout, "next", next.String())
}

// renew puts the layout under another epoch, unless it has changed since it was
// read. It does not wait for the fences, since no home changes.
func (w *writer) renew(ctx context.Context, layout *Layout, epoch string) (*Layout, error) {
	return w.set(ctx, layout, "epoch", epoch)
}

// publish puts the change in force, which all shards know by now.
func (w *writer) publish(ctx context.Context, layout *Layout) (*Layout, error) {
	n := layout.next
	return w.set(ctx, layout, "shards", n.shards, "epoch", n.epoch, "earlier", joinInts(n.earlier), "next", "")
}

// fenceAll binds all shards, old and new, to the next layout. It returns false
// if one knows of another change.
func (w *writer) fenceAll(ctx context.Context, layout *Layout) (bool, error) {
	running, ctx := errgroup.WithContext(ctx)
	running.SetLimit(8)
	for _, k := range layout.keys {
		running.Go(func() error {
			r, err := w.run(ctx, scripts.Fence, k.Meta, layout.next.epoch, layout.next.content(), 1)
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
