package layout

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/clock"
	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// layoutAge is how long a layout is used before it is read again: sink and size
// limit may be others by now, and earlier layouts, each of which costs a visit more,
// be forgotten.
const layoutAge = 10 * time.Second

// Registry is where the layout of one queue is found and changed: its key in
// Redis, the fences of the shards, and the copy that is in use here. It is safe
// for concurrent use.
type Registry struct {
	conn  *conn.Durable
	clock *clock.Clock // learns from each layout that is loaded
	queue keys.Queue
	inUse atomic.Pointer[Layout]
	stale atomic.Pointer[Layout]    // one that a shard has refused
	tried atomic.Pointer[time.Time] // when it was last read because of its age, or loaded
}

// NewRegistry returns the registry of the queue's layout; it does no I/O.
func NewRegistry(c *conn.Durable, clock *clock.Clock, queue keys.Queue) *Registry {
	return &Registry{conn: c, clock: clock, queue: queue}
}

// Load reads the layout from Redis, and uses it from now on.
func (g *Registry) Load(ctx context.Context) (*Layout, error) {
	return g.load(ctx, onlyRead, Layout{})
}

// InUse is the layout that was loaded last, nil before.
func (g *Registry) InUse() *Layout { return g.inUse.Load() }

// Current is the layout in use, which is loaded when it is first needed, when a
// shard has refused it, and when it is ten seconds old; then one caller tries, once
// in ten seconds. Its error is [ErrNoLayout] where there is none.
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

// making says what layout.lua does with a layout, as the script takes it.
type making int

const (
	// onlyRead makes none.
	onlyRead making = iota
	// makeOrUpdate makes one where there is none, and gives sink, size limit and rules to one
	// that is there.
	makeOrUpdate
	// makeOrKeep makes one where there is none, and leaves one that is there alone.
	makeOrKeep
)

func (g *Registry) load(ctx context.Context, m making, want Layout) (*Layout, error) {
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

// use reads the answer of layout.lua or change.lua, which were sent when the clock
// was at sentMs, and uses it from now on.
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
