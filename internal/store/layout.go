package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sharding"

	"github.com/delaybridge/delaybridge/internal/store/scripts"
)

// MaxShards is how many shards a queue may have.
const MaxShards = 4096

// layoutAge is how long a layout with earlier ones is used before it is read
// again: they may be forgotten by now, and each costs a visit more.
const layoutAge = 10 * time.Second

// Layout is how a queue is spread: what every producer and every bridge must
// agree on.
type Layout struct {
	// Shards is how many shards the queue has, see [Queue.SetShards].
	Shards int
	// Epoch tells the layout from every other one: each change makes another,
	// and so does making a queue anew that was wiped.
	Epoch string
	// Sink is the broker whose rules the topics must follow.
	Sink message.SinkType
	// MaxMessage is the size limit of a message, in bytes.
	MaxMessage int
	// Earlier are the shard counts of earlier layouts, oldest first, whose
	// messages have not all left yet.
	Earlier []int
	// Next is the shard count of a change that has begun and is not published
	// yet; 0 if there is none.
	Next int
	// Retired are the counters of shards that were dropped, summed up by name.
	Retired map[string]int64

	next     plan
	dropping []int
	loaded   time.Time
	keys     *keys
}

// Polled is how many shards may have a fence: those in use, and those of a
// change that is not published yet.
func (l *Layout) Polled() int { return max(l.InUse(), l.next.polled()) }

// InUse is how many shards may hold messages: those of the layout in force and
// of the earlier ones that live. Each of them has its meta. Those that a change
// adds are not among them until it is published.
func (l *Layout) InUse() int { return l.plan().polled() }

// SameLife reports whether both are layouts of one making of the queue: it is
// false where Redis was wiped between them.
func (l *Layout) SameLife(other *Layout) bool {
	_, mine := parseEpoch(l.Epoch)
	_, others := parseEpoch(other.Epoch)
	return mine == others
}

func (l *Layout) plan() plan { return plan{epoch: l.Epoch, shards: l.Shards, earlier: l.Earlier} }

func (l *Layout) home(id, key string) int { return sharding.Home(key, id, l.Shards) }

// homes are the shards where a message may be, each once; the last is where
// it would be created.
func (l *Layout) homes(id, key string) []int {
	newest := l.home(id, key)
	homes := make([]int, 0, 1+len(l.Earlier))
	for _, shards := range l.Earlier {
		if home := sharding.Home(key, id, shards); home != newest && !slices.Contains(homes, home) {
			homes = append(homes, home)
		}
	}
	return append(homes, newest)
}

// LoadLayout reads the queue's layout from Redis, and uses it from now on.
func (q *Queue) LoadLayout(ctx context.Context) (*Layout, error) {
	return q.loadLayout(ctx, false, Layout{})
}

// Layout returns the queue's layout, which is loaded when it is first needed and
// when a shard has refused it. Its error is [ErrNoLayout] where there is none.
func (q *Queue) Layout(ctx context.Context) (*Layout, error) {
	layout := q.layout.Load()
	if layout == nil || layout == q.stale.Load() {
		return q.LoadLayout(ctx)
	}
	if len(layout.Earlier) > 0 && time.Since(layout.loaded) > layoutAge {
		if newer, err := q.LoadLayout(ctx); err == nil {
			return newer, nil
		}
	}
	return layout, nil
}

// AwaitLayout is Layout, repeated until Redis answers or ctx ends.
func (q *Queue) AwaitLayout(ctx context.Context) (layout *Layout, err error) {
	err = q.repeat(ctx, func(l *Layout) error { layout = l; return nil })
	return layout, err
}

// EnsureLayout makes the queue's layout where there is none, gives every shard
// its meta, and returns the layout in force: its shards may differ from those
// asked for. Sink and MaxMessage become the ones asked for. A layout that was
// lost alone is taken from the shards, which know it too.
func (q *Queue) EnsureLayout(ctx context.Context, want Layout) (*Layout, error) {
	if want.Shards < 1 || want.Shards > MaxShards {
		return nil, fmt.Errorf("%w: %d", ErrShards, want.Shards)
	}
	if err := q.restore(ctx, &want); err != nil {
		return nil, err
	}
	layout, err := q.loadLayout(ctx, true, want)
	if err != nil {
		return nil, err
	}
	return layout, q.raise(ctx, layout, 0, layout.Polled())
}

// restore takes the layout wanted from the shards, where only its key was lost.
func (q *Queue) restore(ctx context.Context, want *Layout) error {
	if _, err := q.LoadLayout(ctx); !errors.Is(err, ErrNoLayout) {
		return err
	}
	want.Epoch, want.Earlier = newEpoch(1, ""), nil
	for seen := 0; seen < want.Shards; {
		fences, err := q.fences(ctx, newKeys(q.prefix, q.name, want.Shards), seen, want.Shards)
		if err != nil {
			return err
		}
		seen = want.Shards
		for _, f := range fences {
			p, ok := parsePlan(f.epoch, f.content)
			_, life := parseEpoch(p.epoch)
			if _, mine := parseEpoch(want.Epoch); ok && (life != mine || ahead(p.epoch, want.Epoch)) {
				want.Epoch, want.Shards, want.Earlier = p.epoch, p.shards, p.earlier
			}
		}
	}
	// Nobody may find a layout that a shard does not know of yet.
	l := &Layout{Shards: want.Shards, Epoch: want.Epoch, Earlier: want.Earlier}
	l.keys = newKeys(q.prefix, q.name, l.Polled())
	return q.raise(ctx, l, 0, l.Polled())
}

// raise gives shards from, to-1 the layout's fence, where they have a lower one or none.
func (q *Queue) raise(ctx context.Context, l *Layout, from, to int) error {
	for shard := from; shard < to; shard++ {
		_, err := q.conn.Run(ctx, scripts.Fence, []string{l.keys.shards[shard].meta}, l.Epoch, l.plan().content())
		if err != nil {
			return fmt.Errorf("fence shard %d of %s: %w", shard, q.name, err)
		}
	}
	return nil
}

func (q *Queue) loadLayout(ctx context.Context, ensure bool, want Layout) (*Layout, error) {
	sentMs := q.clock.floorMs()
	cmd, err := q.conn.Run(ctx, scripts.Layout, []string{layoutKey(q.prefix, q.name)},
		scripts.Flag(ensure), want.Shards, want.Epoch, string(want.Sink), want.MaxMessage, joinInts(want.Earlier))
	if err != nil {
		return nil, fmt.Errorf("load layout of %s: %w", q.name, err)
	}
	return q.useLayout(scripts.NewReply(cmd), sentMs)
}

// useLayout reads the answer of layout.lua or change.lua, which were sent when the
// clock was at sentMs, and uses it from now on.
func (q *Queue) useLayout(r *scripts.Reply, sentMs int64) (*Layout, error) {
	nowMs, list := r.Int(0), r.List(1)
	if r.Err != nil {
		return nil, r.Err
	}
	q.clock.learn(nowMs, sentMs)
	fields := map[string]string{}
	for i, name := range []string{"shards", "epoch", "sink", "max_message", "earlier", "next", "retired", "dropping"} {
		fields[name] = list.Text(i)
	}
	if fields["shards"] == "" {
		return nil, fmt.Errorf("%w: %s", ErrNoLayout, q.name)
	}
	layout, ok := parseLayout(fields)
	if list.Err != nil || !ok {
		return nil, fmt.Errorf("layout of %s: %w", q.name, scripts.ErrReply)
	}
	layout.keys = newKeys(q.prefix, q.name, layout.Polled())
	if old := q.layout.Load(); old != nil && len(old.keys.shards) == len(layout.keys.shards) {
		layout.keys = old.keys
	}
	layout.loaded = time.Now()
	q.layout.Store(layout)
	return layout, nil
}

func parseLayout(fields map[string]string) (*Layout, bool) {
	now, ok := parsePlan(fields["epoch"], fields["shards"]+"|"+fields["earlier"])
	maxMessage, err := strconv.Atoi(fields["max_message"])
	dropping, okDropping := splitInts(fields["dropping"])
	layout := &Layout{
		Shards: now.shards, Epoch: now.epoch, Sink: message.SinkType(fields["sink"]), MaxMessage: maxMessage,
		Earlier: now.earlier, Retired: map[string]int64{}, dropping: dropping,
	}
	if text := fields["next"]; text != "" {
		var okNext bool
		epoch, content, _ := strings.Cut(text, "|")
		layout.next, okNext = parsePlan(epoch, content)
		layout.Next, ok = layout.next.shards, ok && okNext
	}
	for field := range strings.FieldsSeq(fields["retired"]) {
		name, value, _ := strings.Cut(field, "=")
		layout.Retired[name], _ = strconv.ParseInt(value, 10, 64)
	}
	return layout, ok && okDropping && err == nil
}

// reload has the layout loaded before it is used again, unless somebody else
// has loaded a newer one.
func (q *Queue) reload(old *Layout) { q.stale.Store(old) }
