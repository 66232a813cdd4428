package store

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Listener is told what the hints of one queue say. Its functions must not block.
type Listener struct {
	// Wake says that the head of a shard moved earlier, or that its holder gave it up.
	Wake func(shard int)
	// Changed says that an instance came or went, or that the layout has changed.
	Changed func()
}

// Hints passes on what Redis tells of several queues by pub/sub. Some may be
// lost, as while Redis is away: nobody may depend on one.
type Hints struct {
	rdb redis.UniversalClient

	mu    sync.Mutex
	wants map[*Queue]want
	again chan struct{} // "wants has changed", of 1
}

type want struct {
	shards   []int
	listener Listener
}

// NewHints returns hints of nothing, see [Hints.Set]; it does no I/O.
func NewHints(rdb redis.UniversalClient) *Hints {
	return &Hints{rdb: rdb, wants: map[*Queue]want{}, again: make(chan struct{}, 1)}
}

// Set chooses the shards of the queue whose hints are wanted; none at all ends
// all hints of the queue, those of its instances and its layout, too.
func (h *Hints) Set(q *Queue, shards []int, listener Listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if shards == nil {
		delete(h.wants, q)
	} else {
		h.wants[q] = want{shards: shards, listener: listener}
	}
	select {
	case h.again <- struct{}{}:
	default:
	}
}

// Run passes hints on until ctx ends, and has no goroutine left then.
func (h *Hints) Run(ctx context.Context) {
	for ctx.Err() == nil {
		h.listen(ctx)
	}
}

// listen subscribes to all that is wanted, until ctx ends or that changes.
func (h *Hints) listen(ctx context.Context) {
	actions := map[string]func(){}
	h.mu.Lock()
	for q, w := range h.wants {
		actions[instancesKey(q.prefix, q.name)] = w.listener.Changed
		actions[layoutKey(q.prefix, q.name)] = w.listener.Changed
		for _, shard := range w.shards {
			actions[newShardKeys(q.prefix, q.name, shard).wake] = func() { w.listener.Wake(shard) }
		}
	}
	h.mu.Unlock()
	subscription := h.rdb.SSubscribe(ctx, slices.Sorted(maps.Keys(actions))...)
	defer func() { _ = subscription.Close() }()
	hints := subscription.Channel()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.again:
			return
		case hint, ok := <-hints:
			if !ok {
				return
			}
			if act := actions[hint.Channel]; act != nil {
				act()
			}
		}
	}
}
