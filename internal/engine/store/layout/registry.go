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
// limit may be others by now, and earlier layouts, each of which costs a visit more,
// be forgotten.
const layoutAge = 10 * time.Second

// Registry is where the layout of one queue is found and changed: its key in
// Redis, the fences of the shards, and the copy that is in use here. It is safe
// for concurrent use.
type Registry struct {
	conn  *conn.Confirmer
	clock *clock.Clock // learns from each layout that is loaded
	queue keys.Queue
	inUse atomic.Pointer[Layout]
	stale atomic.Pointer[Layout]    // one that a shard has refused
	tried atomic.Pointer[time.Time] // when it was last read because of its age, or loaded
}

// NewRegistry returns the registry of the queue's layout; it does no I/O.
func NewRegistry(c *conn.Confirmer, clock *clock.Clock, queue keys.Queue) *Registry {
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

// loadMode says what layout.lua does with a layout, as the script takes it.
type loadMode int

const (
	// onlyRead makes none.
	onlyRead loadMode = iota
	// makeOrUpdate makes one where there is none, and gives sink, size limit and rules to one
	// that is there.
	makeOrUpdate
	// makeOrKeep makes one where there is none, and leaves one that is there alone.
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

// fence is what a shard's meta says of the layout.
type fence struct {
	epoch, content string
	// drained is "<epoch> <ms>": since when no message is here that has another home.
	drained string
	// back counts the dead letters that came back, see drained.lua.
	back string
	born time.Time // zero where it is unknown
	// unread is set where the shard's node has not answered.
	unread bool
}

// BornField is the field of a shard's meta that tells when the shard was made, in
// milliseconds: Redis has lost what it had before. Earlier releases have none.
const BornField = "born"

// Born is since when each shard in use of the layout has what it has, by Redis'
// clock; zero where a shard is missing, or was made by an earlier release.
func (g *Registry) Born(ctx context.Context, layout *Layout) ([]time.Time, error) {
	fences, err := g.fences(ctx, layout.keys, 0, layout.InUse())
	born := make([]time.Time, len(fences))
	for shard, f := range fences {
		born[shard] = f.born
	}
	return born, err
}

// fences reads those of the shards from, to-1. With an error it has read some.
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

// DrainedAt reads the field drained of a shard's meta: when the shard had drained
// for the layout of that epoch.
func DrainedAt(drained, epoch string) (ms int64, ok bool) {
	of, at, _ := strings.Cut(drained, " ")
	ms, err := strconv.ParseInt(at, 10, 64)
	return ms, err == nil && of == epoch
}

// refusal is the answer of a shard that is bound to another layout.
type refusal struct {
	layout *Layout // the caller's
	shard  int
	epoch  string // the shard's, empty where it has none
}

func (r *refusal) Error() string { return "layout has changed" }

// IsRefusal reports whether a shard has refused a run, see [Registry.Reconcile].
func IsRefusal(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// Accepted is the refusal of a script that reads, if the shard is bound to another layout than this one.
func (l *Layout) Accepted(r *scripts.Reply, shard int) error {
	const reload = 1
	if r.Int(0) != reload {
		return nil
	}
	return l.Refused(r, shard)
}

// Refused reads a shard's refusal of a run for this layout.
func (l *Layout) Refused(r *scripts.Reply, shard int) error {
	epoch := r.Text(2)
	if r.Err != nil {
		return r.Err
	}
	return &refusal{layout: l, shard: shard, epoch: epoch}
}

// patience is how long a caller that a fence refuses waits for its layout to be
// published, before it finishes the change itself.
const patience = 250 * time.Millisecond

// Reconcile does what a refusal asks for: it loads the layout anew; gives the shard
// a new meta where Redis has lost it; raises the fence where a failover has lost
// that; finishes the change where that has not been done for long. Its errors show again when the caller repeats the run.
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
		// Where the layout is another one by now, somebody else may have done it.
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
