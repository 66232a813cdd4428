package app

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/admin"
	"github.com/delaybridge/delaybridge/internal/config"

	"github.com/delaybridge/delaybridge/internal/outbox/settler"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// outboxModule provides the relays of the databases and the consumers of
// compensation messages.
var outboxModule = fx.Module("outbox", fx.Provide(provideOutboxes))

const (
	// relayPatience is how long a stop waits for relays after the pollers have
	// drained: they were told before, and seldom take longer than the pollers.
	relayPatience = 4 * time.Second
	// flushPatience is how long a stop tries to tell rows what was published last.
	flushPatience = 3 * time.Second
)

// outboxSet are the outboxes of the configuration, in the order of their names,
// and what consumes compensation messages. It owns their goroutines.
type outboxSet struct {
	outboxes  []*outboxRunner
	settler   *settler.Settler // nil where there is no outbox
	consumers []*compensationRunner
	logger    *slog.Logger

	taking, relaying, settling context.CancelFunc
	consuming, relays          sync.WaitGroup
	settled                    sync.WaitGroup
	halted                     chan struct{}
}

type outboxParams struct {
	fx.In

	Lifecycle fx.Lifecycle
	Config    *config.Config
	Queues    *queueSet
	Sinks     sinkSet
	Metrics   *telemetry.Metrics
	Logger    *slog.Logger
}

func provideOutboxes(p outboxParams) (*outboxSet, error) {
	p.Logger = p.Logger.With("instance", p.Config.Instance)
	set := &outboxSet{logger: p.Logger, halted: make(chan struct{})}
	if err := set.open(p); err != nil {
		return nil, err
	}
	var err error
	set.consumers, err = newConsumers(p, set.rows())
	return set, err
}

// open makes the relays, and has the pollers tell the settler what they know.
func (set *outboxSet) open(p outboxParams) error {
	if len(p.Config.Outbox) == 0 {
		return nil
	}
	clock := &redisClock{queues: p.Queues.runners}
	var databases []settler.Database
	for _, name := range slices.Sorted(maps.Keys(p.Config.Outbox)) {
		r, err := newOutboxRunner(p, clock, name)
		if err != nil {
			return fmt.Errorf("outbox %s: %w", name, err)
		}
		p.Lifecycle.Append(fx.StopHook(r.database.Close))
		set.outboxes = append(set.outboxes, r)
		databases = append(databases, settler.Database{Database: r.database, OnSettled: r.metrics.Settled})
	}
	ledgers := make([]settler.Queue, len(p.Queues.runners))
	for i, q := range p.Queues.runners {
		ledgers[i] = settler.Queue{Name: q.queue.Name(), Store: q.queue.Rows(), Held: q.polled}
	}
	var err error
	set.settler, err = settler.New(settler.Config{Databases: databases, Queues: ledgers, Logger: p.Logger})
	if err != nil {
		return err
	}
	for _, q := range p.Queues.runners {
		q.tellRows(set.settler, set.reborn)
	}
	for _, r := range set.outboxes {
		if err := r.audit(p, set.outboxes, set.settler); err != nil {
			return fmt.Errorf("outbox %s: %w", r.name, err)
		}
	}
	return nil
}

// start begins in the background: an unreachable database is no reason to fail.
func (set *outboxSet) start(ctx context.Context) {
	background := context.WithoutCancel(ctx)
	var taking, relaying, settling context.Context
	taking, set.taking = context.WithCancel(background)
	relaying, set.relaying = context.WithCancel(background)
	settling, set.settling = context.WithCancel(background)
	if set.settler != nil {
		set.settled.Go(func() { _ = set.settler.Run(settling) }) // It returns nil.
	}
	for _, r := range set.outboxes {
		set.relays.Go(func() { r.run(relaying) })
	}
	for _, c := range set.consumers {
		set.consuming.Go(func() { c.run(taking) })
	}
}

// halt has everything stop taking, and does not wait: the pollers drain meanwhile.
// The consumers go first, since they have the relays work for them.
func (set *outboxSet) halt() {
	set.taking()
	go func() { // finish waits for it, but for a database that hangs.
		defer close(set.halted)
		set.consuming.Wait()
		set.relaying()
		set.relays.Wait()
	}()
}

// finish waits for what halt has begun, and then tells the rows what the pollers
// have published last. What it cannot, the next instance does.
func (set *outboxSet) finish(ctx context.Context) {
	timer := time.NewTimer(relayPatience)
	defer timer.Stop()
	select {
	case <-set.halted:
	case <-timer.C:
		set.logger.Warn("outbox relays did not end in time, what they were at is done again", "event", "drain")
	}
	set.settling()
	set.settled.Wait()
	if set.settler != nil {
		flush, cancel := context.WithTimeout(ctx, flushPatience)
		defer cancel()
		if err := set.settler.Flush(flush); err != nil {
			set.logger.Warn("rows were not told of the last acknowledgements, others do so later", "event", "drain", "err", err)
		}
	}
}

// reborn is called when Redis has lost messages of a queue.
func (set *outboxSet) reborn(queue string) {
	for _, r := range set.outboxes {
		r.auditor.Suspect(queue)
	}
}

// checks are the databases' lines of /readyz.
func (set *outboxSet) checks() []admin.Check {
	checks := make([]admin.Check, len(set.outboxes))
	for i, r := range set.outboxes {
		checks[i] = admin.Check{Name: "outbox " + r.name, OK: true}
		if err := r.relay.State(); err != nil {
			checks[i].OK, checks[i].Detail = false, err.Error()
		}
	}
	return checks
}
