package layout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// writer runs scripts and waits until the replicas have their effect too, as far
// as these keep up: else a failover may forget it, and others must repair that.
type writer struct {
	*Registry

	mu       sync.Mutex
	replicas map[redis.UniversalClient]int
}

func newWriter(g *Registry) *writer {
	return &writer{Registry: g, replicas: map[redis.UniversalClient]int{}}
}

// set sets fields of the layout's key, unless that has changed since it was
// read, and returns it as it is then.
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
	if copies < int64(count) { // The others are not waited for again.
		w.mu.Lock()
		w.replicas[node] = int(copies)
		w.mu.Unlock()
	}
	return scripts.NewReply(cmd), nil
}

// count is how many replicas the node has. Where an ACL hides that, it is how
// many there are that follow soon.
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

// intend writes down which change begins, unless the layout has changed since
// it was read.
func (w *writer) intend(ctx context.Context, layout *Layout, next plan) (*Layout, error) {
	return w.set(ctx, layout, "next", next.String())
}

// renew puts the layout in force under another epoch, unless it has changed since
// it was read. It does not wait for the fences: no home changes.
func (w *writer) renew(ctx context.Context, layout *Layout, epoch string) (*Layout, error) {
	return w.set(ctx, layout, "epoch", epoch)
}

// publish makes the change that all shards know the layout in force.
func (w *writer) publish(ctx context.Context, layout *Layout) (*Layout, error) {
	n := layout.next
	return w.set(ctx, layout, "shards", n.shards, "epoch", n.epoch, "earlier", joinInts(n.earlier), "next", "")
}

// fenceAll binds all shards, old and new, to the layout that comes next. It
// reports false where one knows of another change.
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
