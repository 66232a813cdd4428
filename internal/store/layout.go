package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"

	"github.com/delaybridge/delaybridge/internal/message"
)

// Layout is how a queue is spread: what every producer and every bridge must
// agree on.
type Layout struct {
	// Shards is how many shards the queue has; fixed when the layout is made.
	Shards int
	// Epoch is a counter and a nonce: a queue that was wiped and made anew has
	// another one, so that nobody goes on with what he knew of the old one.
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

	keys *keys
}

// Polled is how many shards may hold messages: those of all layouts that live.
func (l *Layout) Polled() int {
	return max(l.Shards, l.Next, slices.Max(append([]int{0}, l.Earlier...)))
}

// LoadLayout reads the queue's layout from Redis, and uses it from now on.
func (q *Queue) LoadLayout(ctx context.Context) (*Layout, error) {
	return q.loadLayout(ctx, false, Layout{})
}

// Layout returns the queue's layout, which is loaded once. Its error is
// [ErrNoLayout] where there is none.
func (q *Queue) Layout(ctx context.Context) (*Layout, error) {
	if layout := q.layout.Load(); layout != nil {
		return layout, nil
	}
	return q.LoadLayout(ctx)
}

// AwaitLayout is Layout, repeated until Redis answers or ctx ends.
func (q *Queue) AwaitLayout(ctx context.Context) (layout *Layout, err error) {
	err = q.repeat(ctx, func(l *Layout) error { layout = l; return nil })
	return layout, err
}

// EnsureLayout makes the queue's layout where there is none, gives every shard
// its meta, and returns the layout in force: its shards may differ from those
// asked for. Sink and MaxMessage become the ones asked for.
func (q *Queue) EnsureLayout(ctx context.Context, want Layout) (*Layout, error) {
	nonce := make([]byte, 8)
	_, _ = rand.Read(nonce) // It never fails.
	want.Epoch = "1-" + hex.EncodeToString(nonce)
	layout, err := q.loadLayout(ctx, true, want)
	if err != nil {
		return nil, err
	}
	for shard := range layout.keys.shards {
		if _, err := shardMetaScript.run(ctx, q.client(ctx), []string{layout.keys.shards[shard].meta}, layout.Epoch); err != nil {
			return nil, fmt.Errorf("make shard %d of %s: %w", shard, q.name, err)
		}
	}
	return layout, nil
}

func (q *Queue) loadLayout(ctx context.Context, ensure bool, want Layout) (*Layout, error) {
	cmd, err := layoutScript.run(ctx, q.client(ctx), []string{layoutKey(q.prefix, q.name)},
		flag(ensure), want.Shards, want.Epoch, string(want.Sink), want.MaxMessage)
	if err != nil {
		return nil, fmt.Errorf("load layout of %s: %w", q.name, err)
	}
	r := newReply(cmd)
	nowMs := r.int(0)
	if r.bad != nil {
		return nil, r.bad
	}
	q.clock.observe(nowMs)
	if len(r.values) == 1 {
		return nil, fmt.Errorf("%w: %s", ErrNoLayout, q.name)
	}
	layout, err := q.parseLayout(r)
	if err != nil {
		return nil, err
	}
	q.layout.Store(layout)
	return layout, nil
}

func (q *Queue) parseLayout(r *reply) (*Layout, error) {
	shards, errShards := strconv.Atoi(r.text(1))
	maxMessage, errMax := strconv.Atoi(r.text(4))
	layout := &Layout{Shards: shards, Epoch: r.text(2), Sink: message.SinkType(r.text(3)), MaxMessage: maxMessage}
	if r.bad != nil || errShards != nil || errMax != nil || shards < 1 || layout.Epoch == "" {
		return nil, fmt.Errorf("layout of %s: %w", q.name, errReply)
	}
	layout.keys = newKeys(q.prefix, q.name, shards)
	return layout, nil
}

// reload forgets the layout, unless somebody else has loaded a newer one.
func (q *Queue) reload(old *Layout) { q.layout.CompareAndSwap(old, nil) }
