package poller

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Assign makes the given shards the ones that are polled, of all that the queue has, and
// returns at once.
// New ones begin now; those that are not among them any more claim nothing from
// now on, and each is handed over as soon as it has settled, however long the
// others take. A shard that comes back while it drains begins when that is over.
// An error says that the poller does not run.
func (p *Poller) Assign(shards []int, of int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopped:
		return fmt.Errorf("assign shards: %w", errStopped)
	case !p.started:
		return fmt.Errorf("assign shards: %w", errNotStarted)
	}
	p.queue.Rates().Spread(of)
	clear(p.returning)
	for _, s := range p.retire(func(index int) bool { return !slices.Contains(shards, index) }) {
		p.handOvers.Go(func() { p.handOver(s) })
	}
	for _, index := range shards {
		if old := p.retired[index]; old != nil && !closed(old.done) {
			p.returning[index] = true
			continue
		}
		p.begin(index)
	}
	return nil
}

// handOver is the goroutine of a shard that leaves: it drains the shard, and
// begins with it again if it has come back meanwhile. Where the sink hangs, the
// shard's calls are cut off in the end and its lease lapses; then this goroutine
// waits as long as the sink does.
func (p *Poller) handOver(s *driver) {
	ctx, cancel := context.WithTimeout(p.ctx, p.queue.config.Sink.handOverTime())
	defer cancel()
	if err := s.drain(ctx); err != nil {
		s.log.Warn("shard not handed over in time, its lease lapses", "event", "drain", "err", err)
		<-s.done
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.returning[s.index] && p.retired[s.index] == s && !p.stopped {
		delete(p.returning, s.index)
		p.begin(s.index)
	}
}

// handOverTime is how long a shard may drain that others wait for: no publish
// is cut short that could still succeed.
func (s *Sink) handOverTime() time.Duration { return s.Timeout + maxDrainMargin }

// begin starts a shard's loop; p.mu is held, and an earlier loop of it has ended.
func (p *Poller) begin(index int) {
	if p.running[index] != nil {
		return
	}
	number := uint64(1)
	if old := p.retired[index]; old != nil {
		number = old.shard.Number()
		delete(p.retired, index)
	}
	s := newDriver(p.ctx, p.queue, index, number)
	p.running[index] = s
	go s.loop()
}

// retire takes shards out of the running ones; p.mu is held.
func (p *Poller) retire(leaves func(index int) bool) []*driver {
	var leaving []*driver
	for index, s := range p.running {
		if leaves(index) {
			delete(p.running, index)
			p.retired[index] = s
			leaving = append(leaving, s)
		}
	}
	return leaving
}
