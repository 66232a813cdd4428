package runner

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/hints"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// place is where the queue of one name runs. One that is to be replaced or removed drains first, and
// what was asked last follows it:
//
//	(none) ──added──► running ──replaced, removed──► draining ──drained──► running with next, or (none)
//	                                                 │      ▲
//	                                                 └──────┘ asked otherwise: another next
type place struct {
	running    *queue
	isDraining bool
	next       *queue // nil: the queue is removed
}

// newest is the queue that runs, or is to; nil if it is removed.
func (p *place) newest() *queue {
	switch {
	case p == nil:
		return nil
	case p.isDraining:
		return p.next
	default:
		return p.running
	}
}

// follow has a queue come next, or none, and reports whether the one that runs is to drain now.
func (p *place) follow(next *queue) (drains bool) {
	drains = !p.isDraining
	p.isDraining, p.next = true, next
	return drains
}

// advance returns the next queue, which runs from now on; nil if there is none.
func (p *place) advance() *queue {
	if p.next == nil {
		return nil
	}
	p.running, p.next, p.isDraining = p.next, nil, false
	return p.running
}

// leftTimeout bounds how long a queue's messages are counted when it is removed.
const leftTimeout = 5 * time.Second

// Prepare makes what another configuration needs, which differs in these changes, without I/O, and returns what puts it in
// force. That does not wait for the queues that drain. An error, and a configuration that is not put in force, change nothing.
// Outboxes and inlets that were made for these queues follow.
func (set *Queues) Prepare(next *config.Config, changes config.Changes) (commit func(), err error) {
	set.mu.Lock()
	all := set.config
	set.mu.Unlock()
	// One that gives no name has got another one.
	named := *next
	named.Instance = all.Config.Instance
	all.Config = &named
	made := map[string]*queue{}
	for _, name := range slices.Concat(changes.Added, changes.Restarted) {
		// The claims of one that ran before under this name are not its own, as after a restart of the bridge.
		all.Instance = message.NewInstance(named.Instance)
		if made[name], err = newQueue(all, set, name); err != nil {
			return nil, fmt.Errorf("queue %s: %w", name, err)
		}
	}
	following, err := set.prepareFollowers(&named, slices.Concat(changes.Removed, changes.Restarted), made)
	if err != nil {
		return nil, err
	}
	return func() { set.change(&named, changes, made, following) }, nil
}

// addOutboxes has outboxes follow the queues, which must not have started.
func (set *Queues) addOutboxes(outboxes *Outboxes) { set.outboxes = outboxes }

// addInlets has inlets follow the queues, which must not have started.
func (set *Queues) addInlets(inlets *Inlets) { set.inlets = inlets }

// prepareFollowers has those that work for the queues make what they need for others. What it returns has them follow, and does not block.
func (set *Queues) prepareFollowers(next *config.Config, gone []string, come map[string]*queue) (follow func(), err error) {
	outboxes, inlets := func() {}, func() {}
	if set.outboxes != nil {
		if outboxes, err = set.outboxes.prepare(next, gone, come); err != nil {
			return nil, err
		}
	}
	if set.inlets != nil {
		if inlets, err = set.inlets.prepare(next, come); err != nil {
			return nil, err
		}
	}
	return func() { outboxes(); inlets() }, nil
}

// change puts a configuration in force, with the queues that were made for it.
func (set *Queues) change(next *config.Config, changes config.Changes, made map[string]*queue, follow func()) {
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.stopped {
		return
	}
	set.config.Config = next
	follow()
	for _, name := range slices.Concat(changes.Added, changes.Restarted, changes.Removed) {
		set.replace(name, made[name])
	}
	for _, name := range changes.Changed {
		// A queue without a changed key is left alone, since its rates would start again empty.
		cfg := next.Queues[name]
		set.places[name].newest().change(&cfg)
	}
	set.show()
}

// replace has a queue follow the one of that name; nil removes it.
func (set *Queues) replace(name string, next *queue) {
	p := set.places[name]
	switch {
	case next != nil && (p == nil || set.ctx == nil):
		set.places[name] = &place{running: next}
		set.start(next)
	case set.ctx == nil: // It has not started.
		delete(set.places, name)
		set.config.Metrics.RemoveQueue(name)
	case p.follow(next):
		ctx := set.ctx
		set.draining.Go(func() { set.leave(ctx, name, p) })
	}
}

func (set *Queues) start(q *queue) {
	if set.ctx != nil {
		q.start(set.ctx)
	}
}

// leave drains the queue of a place, and lets the next one follow. As long as it does, other instances
// may poll the queue already.
func (set *Queues) leave(ctx context.Context, name string, p *place) {
	old := p.running
	if err := old.stop(ctx); err != nil {
		old.logger.Warn("queue did not drain in time, the rest is published again by whoever polls it next", "event", "queue_drain", "err", err)
	}
	set.hints.Set(old.store.Keys(), nil, hints.Listener{})
	var left []any
	if set.isRemoved(p) {
		left = old.left(ctx)
		if set.outboxes != nil {
			set.outboxes.flush(ctx)
		}
	}
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.stopped {
		return
	}
	next := p.advance()
	if next == nil {
		delete(set.places, name)
		if set.outboxes != nil {
			set.outboxes.removed(name)
		}
		set.config.Metrics.RemoveQueue(name)
		old.logger.Warn("queue removed; its messages stay in redis and are published when it comes back", append([]any{"event", "queue_removed"}, left...)...)
		return
	}
	set.config.Metrics.QueueHas(name, next.inForce.Load().Canary.Topic != "", next.durability != nil)
	set.start(next)
	next.logger.Info("queue starts again", "event", "queue_restarted")
}

// isRemoved reports whether no queue is to follow in a place, as far as is known now.
func (set *Queues) isRemoved(p *place) bool {
	set.mu.Lock()
	defer set.mu.Unlock()
	return p.newest() == nil && !set.stopped
}

// left counts what a queue has in Redis, for the log.
func (q *queue) left(ctx context.Context) []any {
	ctx, cancel := context.WithTimeout(ctx, leftTimeout)
	defer cancel()
	stats, err := inspect.NewAdmin(q.store).StatsOfAll(ctx)
	if err != nil {
		return []any{"messages", "unknown", "err", err}
	}
	sum := stats.Sum()
	return []any{"waiting", sum.Waiting, "in_flight", sum.InFlight, "dead", sum.Dead}
}

// show has the API use the queues that there are now.
func (set *Queues) show() {
	used := map[string]*operate.Queue{}
	for name, p := range set.places {
		q := p.newest()
		if q == nil {
			continue
		}
		q.declaredIn(set.config.Config.QueueFile(name))
		used[name] = q.used
	}
	set.used.Store(&used)
}
