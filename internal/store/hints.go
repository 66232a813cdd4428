package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/store/conn"
)

// Listener is told what the hints of one queue say. Its functions must not
// block; several of them may be called at once.
type Listener struct {
	// Wake says that the head of a shard moved earlier, or that its holder gave
	// it up, or that either may have happened unheard.
	Wake func(shard int)
	// Changed says that an instance came or went, or that the layout has
	// changed, or that either may have happened unheard.
	Changed func()
}

// Hints passes on what Redis tells of several queues by pub/sub: on one
// connection to each Redis node, whatever the number of queues and shards. Some
// hints may be lost, as while Redis is away: nobody may depend on one. After
// each subscription the listener is told once, since something may have been
// lost before.
type Hints struct {
	rdb redis.UniversalClient

	mu      sync.Mutex
	wants   map[*Queue][]string // the channels of each queue
	actions map[string]func()   // what a hint on each channel calls

	again chan struct{} // "the wants have changed", of 1
	moved chan struct{} // "a channel's node may be another one now", of 1
}

// Times of hints in a Cluster.
const (
	// regroupEvery is how often the channels are compared with the slots.
	regroupEvery = time.Second
	// reloadPause is how long the slots may take to be read again.
	reloadPause = 200 * time.Millisecond
)

// NewHints returns hints of nothing, see [Hints.Set]; it does no I/O.
func NewHints(rdb redis.UniversalClient) *Hints {
	return &Hints{
		rdb: rdb, wants: map[*Queue][]string{}, actions: map[string]func(){},
		again: make(chan struct{}, 1), moved: make(chan struct{}, 1),
	}
}

// Set chooses the shards of the queue whose hints are wanted, beside those of
// its instances and its layout; nil ends all hints of the queue. A hint that is
// on its way may still reach the listener of before.
func (h *Hints) Set(q *Queue, shards []int, listener Listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, channel := range h.wants[q] {
		delete(h.actions, channel)
	}
	delete(h.wants, q)
	if shards != nil {
		channels := []string{q.keys.Instances(), q.keys.Layout()}
		for _, channel := range channels {
			h.actions[channel] = listener.Changed
		}
		for _, shard := range shards {
			channel := q.keys.Shard(shard).Wake
			h.actions[channel] = func() { listener.Wake(shard) }
			channels = append(channels, channel)
		}
		h.wants[q] = channels
	}
	raiseFlag(h.again)
}

// act calls what a hint on the channel is for.
func (h *Hints) act(channel string) {
	h.mu.Lock()
	action := h.actions[channel]
	h.mu.Unlock()
	if action != nil {
		action()
	}
}

// Run passes hints on until ctx ends, and has no goroutine left then.
func (h *Hints) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	nodes := map[hintNode]*nodeHints{}
	cluster, _ := h.rdb.(*redis.ClusterClient)
	for {
		if groups, err := h.group(ctx); err == nil {
			h.assign(ctx, &running, nodes, groups)
		}
		if !h.await(ctx, cluster) {
			return
		}
	}
}

// group spreads the wanted channels over the nodes that hold them.
func (h *Hints) group(ctx context.Context) (map[hintNode]map[string]bool, error) {
	h.mu.Lock()
	channels := make([]string, 0, len(h.actions))
	for channel := range h.actions {
		channels = append(channels, channel)
	}
	h.mu.Unlock()
	groups := map[hintNode]map[string]bool{}
	for _, channel := range channels {
		node, err := conn.Node(ctx, h.rdb, channel)
		if err != nil {
			return nil, fmt.Errorf("group hints: %w", err)
		}
		if groups[node] == nil {
			groups[node] = map[string]bool{}
		}
		groups[node][channel] = true
	}
	return groups, nil
}

// assign gives each node its channels; those that have none any more end.
func (h *Hints) assign(
	ctx context.Context, running *sync.WaitGroup, nodes map[hintNode]*nodeHints, groups map[hintNode]map[string]bool,
) {
	for node, channels := range groups {
		n := nodes[node]
		if n == nil {
			n = newNodeHints(h, node)
			nodes[node] = n
			nodeCtx, stop := context.WithCancel(ctx)
			n.stop = stop
			running.Go(func() { n.run(nodeCtx) })
		}
		n.set(channels)
	}
	for node, n := range nodes {
		if groups[node] == nil {
			n.stop()
			delete(nodes, node)
		}
	}
}

// await waits until channels may belong elsewhere; false when ctx ends before.
func (h *Hints) await(ctx context.Context, cluster *redis.ClusterClient) bool {
	if cluster == nil {
		for {
			select {
			case <-ctx.Done():
				return false
			case <-h.again:
				return true
			case <-h.moved: // There is one node only.
			}
		}
	}
	timer := time.NewTimer(regroupEvery)
	defer timer.Stop()
	moved := h.moved
	for {
		select {
		case <-ctx.Done():
			return false
		case <-h.again:
			return true
		case <-timer.C:
			return true
		case <-moved:
			cluster.ReloadState(ctx)
			timer.Reset(reloadPause)
			moved = nil // Once is enough.
		}
	}
}

// raiseFlag sets a flag that is a channel of 1.
func raiseFlag(flag chan<- struct{}) {
	select {
	case flag <- struct{}{}:
	default:
	}
}
