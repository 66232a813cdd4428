package poller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

var (
	errStopped    = errors.New("the poller was stopped")
	errNotStarted = errors.New("the poller was not started")
)

// looksMissed is how many times the longest time between two looks may pass
// before the loop counts as hung.
const looksMissed = 3

// Poller polls shards of one queue. It owns a goroutine a shard and one for
// each batch in flight, from Start to Stop.
type Poller struct {
	queue *Queue

	mu      sync.Mutex
	started bool
	stopped bool
	running map[int]*driver
	// retired shards drain or have drained: their claim numbers continue if they come back.
	retired map[int]*driver
	// returning are those of the retired ones that are to begin again when they
	// have drained.
	returning map[int]bool
	// handOvers are the goroutines of handOver.
	handOvers sync.WaitGroup
	ctx       context.Context
}

// New checks the configuration. It starts nothing.
func New(config Config) (*Poller, error) {
	queue, err := NewQueue(config)
	if err != nil {
		return nil, err
	}
	return &Poller{queue: queue, running: make(map[int]*driver), retired: make(map[int]*driver), returning: make(map[int]bool)}, nil
}

// Start begins to poll the configured shards and returns at once; ctx does not
// end the polling, Stop does. A second Start changes nothing; after Stop it is
// an error.
func (p *Poller) Start(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopped:
		return errStopped
	case p.started:
		return nil
	}
	p.started = true
	p.ctx = context.WithoutCancel(ctx)
	p.queue.Rates().Start(p.ctx) //nolint:contextcheck // as below
	for _, index := range p.queue.config.Shards {
		p.begin(index) //nolint:contextcheck // The polling outlives ctx, Stop ends it.
	}
	return nil
}

// Stop drains: it claims no more, waits for what is in flight until shortly
// before ctx ends (20 s where it has no deadline), settles or
// releases the rest, and hands the shards over. It may be called twice, and
// without Start. An error says that something could not be ended in time.
func (p *Poller) Stop(ctx context.Context) error {
	p.mu.Lock()
	p.stopped = true
	p.retire(func(int) bool { return true })
	draining := make([]*driver, 0, len(p.retired))
	for _, s := range p.retired {
		draining = append(draining, s)
	}
	p.mu.Unlock()
	err := drainAll(ctx, draining)
	p.queue.Rates().Stop()
	if err == nil {
		p.handOvers.Wait() // All shards have ended, and so do these.
	}
	return err
}

func drainAll(ctx context.Context, shards []*driver) error {
	failures := make([]error, len(shards))
	var drains sync.WaitGroup
	for i, s := range shards {
		drains.Go(func() { failures[i] = s.drain(ctx) })
	}
	drains.Wait()
	return errors.Join(failures...)
}

// Wake hints that the head of a shard has moved earlier. It never blocks, and
// many hints become one look.
func (p *Poller) Wake(shard int) {
	p.mu.Lock()
	s := p.running[shard]
	p.mu.Unlock()
	if s != nil {
		wait.Wake(s.hint)
	}
}

// Pause says which topics are paused from now on, and since when by Redis' clock; the
// empty one is the whole queue. The messages of a paused topic are parked without
// probes; of a paused queue nothing is claimed, while its leases are renewed. What is
// in flight is finished.
func (p *Poller) Pause(topics map[string]time.Time) {
	p.queue.Pause(topics)
	p.lookAgain()
}

// Change gives the queue another policy. What is decided from now on is decided by it,
// of messages in flight, too. Of rates nothing is in hand.
func (p *Poller) Change(policy Policy) {
	p.queue.Follow(policy)
	p.lookAgain()
}

// lookAgain has each shard take a turn, which heeds what has changed.
func (p *Poller) lookAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.running {
		wait.Wake(s.news)
	}
}

// Gains returns which shards it has come to hold since the last call, so that many that come
// at once are logged together.
func (p *Poller) Gains() Gains { return p.queue.takeGains() }

// Shards are those that are polled now, sorted: not those that drain.
func (p *Poller) Shards() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.running))
}

// Live returns an error if a loop has not looked for so long that it must hang.
func (p *Poller) Live() error {
	limit := looksMissed * (p.queue.config.Claims.MaxSleep + p.queue.config.Claims.callTimeout())
	index, look := p.longestAgo()
	if ago := time.Since(look); !look.IsZero() && ago > limit {
		return fmt.Errorf("shard %d of queue %q has not looked for %s", index, p.queue.config.Queue, ago.Round(time.Millisecond))
	}
	return nil
}

// longestAgo is which loop has looked the longest ago, and when; zero if none runs.
func (p *Poller) longestAgo() (index int, look time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, s := range p.running {
		at := p.queue.base.Add(time.Duration(s.lastLook.Load()))
		if look.IsZero() || at.Before(look) {
			index, look = i, at
		}
	}
	return index, look
}
