// Package hints receives hints by pub/sub that there is something to look at.
// Hints may be lost, so nothing may depend on one.
package hints

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// Listener receives the hints of one queue. Its functions must not block;
// several of them may be called at once.
type Listener struct {
	// Wake says that the head of a shard moved earlier, or that its holder gave
	// it up, or that either may have happened unheard.
	Wake func(shard int)
	// Changed says that an instance came or went, that the layout has changed,
	// that a topic was paused, a job was begun or a recurring schedule was changed, or that any of it may have
	// happened unheard.
	Changed func()
}

// Subscriber passes on the hints of several queues, over one connection to each
// Redis node, whatever the number of queues and shards. Hints are lost while
// Redis is unavailable, so after each subscription it calls the listener once.
type Subscriber struct {
	rdb redis.UniversalClient

	mu      sync.Mutex
	wants   map[keys.Queue][]string // the channels of each queue
	actions map[string]func()       // what a hint on each channel calls

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

// New returns a subscriber to nothing, see [Subscriber.Set]; it does no I/O.
func New(rdb redis.UniversalClient) *Subscriber {
	return &Subscriber{
		rdb: rdb, wants: map[keys.Queue][]string{}, actions: map[string]func(){},
		again: make(chan struct{}, 1), moved: make(chan struct{}, 1),
	}
}

// Set chooses the shards of the queue whose hints are wanted, in addition to
// those of its instances and its layout; nil ends all hints of the queue. A
// hint under way may still reach the previous listener.
func (s *Subscriber) Set(queue keys.Queue, shards []int, listener Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, channel := range s.wants[queue] {
		delete(s.actions, channel)
	}
	delete(s.wants, queue)
	if shards != nil {
		channels := []string{queue.Instances(), queue.Layout()}
		for _, channel := range channels {
			s.actions[channel] = listener.Changed
		}
		for _, shard := range shards {
			channel := queue.Shard(shard).Wake
			s.actions[channel] = func() { listener.Wake(shard) }
			channels = append(channels, channel)
		}
		s.wants[queue] = channels
	}
	wait.Wake(s.again)
}

// act calls the action of a hint's channel.
func (s *Subscriber) act(channel string) {
	s.mu.Lock()
	action := s.actions[channel]
	s.mu.Unlock()
	if action != nil {
		action()
	}
}

// Run passes hints on until ctx ends, and has no goroutine left then.
func (s *Subscriber) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	nodes := map[nodeClient]*nodeSubscriber{}
	cluster, _ := s.rdb.(*redis.ClusterClient)
	for {
		if groups, err := s.group(ctx); err == nil {
			s.assign(ctx, &running, nodes, groups)
		}
		if !s.await(ctx, cluster) {
			return
		}
	}
}

// group spreads the wanted channels over the nodes that hold them.
func (s *Subscriber) group(ctx context.Context) (map[nodeClient]map[string]bool, error) {
	s.mu.Lock()
	channels := make([]string, 0, len(s.actions))
	for channel := range s.actions {
		channels = append(channels, channel)
	}
	s.mu.Unlock()
	groups := map[nodeClient]map[string]bool{}
	for _, channel := range channels {
		node, err := conn.Node(ctx, s.rdb, channel)
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

// assign gives each node its channels, and ends the nodes without any.
func (s *Subscriber) assign(
	ctx context.Context, running *sync.WaitGroup, nodes map[nodeClient]*nodeSubscriber, groups map[nodeClient]map[string]bool,
) {
	for node, channels := range groups {
		n := nodes[node]
		if n == nil {
			n = newNodeSubscriber(s, node)
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
func (s *Subscriber) await(ctx context.Context, cluster *redis.ClusterClient) bool {
	if cluster == nil {
		for {
			select {
			case <-ctx.Done():
				return false
			case <-s.again:
				return true
			case <-s.moved: // There is only one node.
			}
		}
	}
	timer := time.NewTimer(regroupEvery)
	defer timer.Stop()
	moved := s.moved
	for {
		select {
		case <-ctx.Done():
			return false
		case <-s.again:
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
