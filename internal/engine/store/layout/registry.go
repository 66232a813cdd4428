package layout

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store/clock"
	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// layoutAge is how long a layout is used before it is read again: sink and size
// limit may have changed, and earlier layouts, each of which costs another visit,
// may be gone.
const layoutAge = 10 * time.Second

// Registry reads and changes the layout of one queue: its key in Redis, the
// fences of the shards, and this process' copy. It is safe for concurrent use.
type Registry struct {
	conn  *conn.Confirmer
	clock *clock.Clock // learns from each layout that is loaded
	queue keys.Queue
	inUse atomic.Pointer[Layout]
	stale atomic.Pointer[Layout]    // one that a shard has refused
	tried atomic.Pointer[time.Time] // when it was last loaded, or read because of its age
}

// NewRegistry returns the registry of the queue's layout; it does no I/O.
func NewRegistry(c *conn.Confirmer, clock *clock.Clock, queue keys.Queue) *Registry {
	return &Registry{conn: c, clock: clock, queue: queue}
}

// Load reads the layout from Redis, and uses it from now on.
func (g *Registry) Load(ctx context.Context) (*Layout, error) {
	return g.load(ctx, onlyRead, Layout{})
}

// InUse returns the layout that was loaded last, nil if none was.
func (g *Registry) InUse() *Layout { return g.inUse.Load() }

// Current returns the layout in use. It loads the layout at the first call, after a
// shard has refused it, and when it is ten seconds old; then one caller tries, once
// in ten seconds. Its error is [ErrNoLayout] if there is none.
func (g *Registry) Current(ctx context.Context) (*Layout, error) {
	layout := g.inUse.Load()
	if layout == nil || layout == g.stale.Load() {
		return g.Load(ctx)
	}
	now := time.Now()
	if last := g.tried.Load(); now.Sub(*last) > layoutAge && g.tried.CompareAndSwap(last, &now) {
		if newer, err := g.Load(ctx); err == nil {
			return newer, nil
		}
	}
	return layout, nil
}

// loadMode tells layout.lua what to do with a layout.
type loadMode int

const (
	// onlyRead changes nothing.
	onlyRead loadMode = iota
	// makeOrUpdate makes a layout if there is none, and sets sink, size limit and rules of an
	// existing one.
	makeOrUpdate
	// makeOrKeep makes a layout if there is none, and leaves an existing one alone.
	makeOrKeep
)

func (g *Registry) load(ctx context.Context, m loadMode, want Layout) (*Layout, error) {
	rules, err := want.Rules.encode()
	if err != nil {
		return nil, err
	}
	sentMs := g.clock.FloorMs()
	cmd, err := g.conn.Run(ctx, scripts.Layout, []string{g.queue.Layout()},
		int(m), want.Shards, want.Epoch, string(want.Sink), want.MaxMessage, joinInts(want.Earlier), rules)
	if err != nil {
		return nil, fmt.Errorf("load layout of %s: %w", g.queue.Name, err)
	}
	return g.use(scripts.NewReply(cmd), sentMs)
}

// use decodes the reply of layout.lua or change.lua, which was sent at sentMs, and
// puts it in use.
func (g *Registry) use(r *scripts.Reply, sentMs int64) (*Layout, error) {
	nowMs, list := r.Int(0), r.List(1)
	if r.Err != nil {
		return nil, r.Err
	}
	g.clock.Learn(nowMs, sentMs)
	fields := map[string]string{}
	for i, name := range []string{"shards", "epoch", "sink", "max_message", "earlier", "next", "retired", "dropping", "rules"} {
		fields[name] = list.Text(i)
	}
	if fields["shards"] == "" {
		return nil, fmt.Errorf("%w: %s", ErrNoLayout, g.queue.Name)
	}
	layout, ok := parseLayout(fields)
	if list.Err != nil || !ok {
		return nil, fmt.Errorf("layout of %s: %w", g.queue.Name, scripts.ErrReply)
	}
	if old := g.inUse.Load(); old != nil && len(old.keys) == layout.Polled() {
		layout.keys = old.keys
	} else {
		layout.keys = g.queue.Shards(layout.Polled())
	}
	layout.loaded = time.Now()
	g.tried.Store(&layout.loaded)
	g.inUse.Store(layout)
	return layout, nil
}

// fence is what a shard's meta says about the layout.
type fence struct {
	epoch, content string
	// drained is "<epoch> <ms>": since then no message here has another home.
	drained string
	// back counts the dead letters that came back, see drained.lua.
	back string
	born time.Time // zero if unknown
	// unread is set if the shard's node has not answered.
	unread bool
}

// BornField is the field of a shard's meta that says when the shard was made, in milliseconds;
// if it had messages before, Redis has lost them. Earlier releases do not write it.
const BornField = "born"

// Born returns when each shard in use was made, by Redis' clock; zero if a
// shard is missing, or was made by an earlier release.
func (g *Registry) Born(ctx context.Context, layout *Layout) ([]time.Time, error) {
	fences, err := g.fences(ctx, layout.keys, 0, layout.InUse())
	born := make([]time.Time, len(fences))
	for shard, f := range fences {
		born[shard] = f.born
	}
	return born, err
}

// fences reads the fences of the shards from to to-1. With an error it has read some of them.
func (g *Registry) fences(ctx context.Context, shards []keys.Shard, from, to int) (list []fence, err error) {
	cmds, err := conn.AskShards(ctx, g.conn.Client(ctx), shards[from:to], func(pipe redis.Pipeliner, k keys.Shard) *redis.SliceCmd {
		return pipe.HMGet(ctx, k.Meta, "epoch", "layout", "drained", "redriven", "replaced", BornField)
	})
	if err != nil {
		err = fmt.Errorf("read shards of %s: %w", g.queue.Name, err)
	}
	for _, cmd := range cmds {
		values := cmd.Val()
		if len(values) == 0 {
			list = append(list, fence{unread: true})
			continue
		}
		text := func(i int) string { s, _ := values[i].(string); return s }
		f := fence{epoch: text(0), content: text(1), drained: text(2), back: text(3) + " " + text(4)}
		if ms, err := strconv.ParseInt(text(5), 10, 64); err == nil {
			f.born = time.UnixMilli(ms)
		}
		list = append(list, f)
	}
	return list, err
}

// DrainedAt decodes the field drained of a shard's meta: when the shard had
// drained for the layout of that epoch.
func DrainedAt(drained, epoch string) (ms int64, ok bool) {
	of, at, _ := strings.Cut(drained, " ")
	ms, err := strconv.ParseInt(at, 10, 64)
	return ms, err == nil && of == epoch
}

// refusal is the answer of a shard that is bound to another layout.
type refusal struct {
	layout *Layout // the caller's
	shard  int
	epoch  string // the shard's, empty if it has none
}

func (r *refusal) Error() string { return "layout has changed" }

// IsRefusal reports whether err is a shard's refusal, see [Registry.Reconcile].
func IsRefusal(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// Accepted returns the refusal of a script that reads, if the shard is bound to another layout.
func (l *Layout) Accepted(r *scripts.Reply, shard int) error {
	const reload = 1
	if r.Int(0) != reload {
		return nil
	}
	return l.Refused(r, shard)
}

// Refused decodes a shard's refusal of a run for this layout.
func (l *Layout) Refused(r *scripts.Reply, shard int) error {
	epoch := r.Text(2)
	if r.Err != nil {
		return r.Err
	}
	return &refusal{layout: l, shard: shard, epoch: epoch}
}

// Bound returns a refusal unless the shard is bound to this layout, to which epoch is its own.
func (l *Layout) Bound(shard int, epoch string) error {
	if epoch == l.Epoch {
		return nil
	}
	return &refusal{layout: l, shard: shard, epoch: epoch}
}

// patience is how long a caller refused by a fence waits for the new layout to
// be published before it finishes the change itself.
const patience = 250 * time.Millisecond

// Reconcile resolves a refusal: it loads the layout again; gives the shard a new meta if Redis has lost it;
// raises the fence if a failover has lost that; and finishes a change that is overdue. It returns no error,
// because the caller meets it again when it repeats the run.
func (g *Registry) Reconcile(ctx context.Context, err error, since time.Time) {
	var r *refusal
	if !errors.As(err, &r) {
		return
	}
	g.stale.Store(r.layout)
	layout, err := g.Load(ctx)
	switch {
	case err != nil || r.epoch == layout.Epoch:
	case r.epoch == "":
		// If the layout has changed meanwhile, somebody else may have done it.
		if r.layout.Epoch == layout.Epoch && r.shard < layout.InUse() {
			_ = g.remake(ctx, layout, []int{r.shard})
		}
	case ahead(r.epoch, layout.Epoch):
		if time.Since(since) >= patience {
			_, _ = g.finish(ctx)
		}
	case r.shard < layout.Polled():
		_ = g.raise(ctx, layout, r.shard, r.shard+1, false)
	}
}
