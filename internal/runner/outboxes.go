package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/admin"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/outbox/settler"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

const (
	// relayPatience is how long a stop waits for relays after the pollers have
	// drained: they were told before, and seldom take longer than the pollers.
	relayPatience = 4 * time.Second
	// flushPatience is how long a stop tries to tell rows what was published last.
	flushPatience = 3 * time.Second
)

// Outboxes are the outboxes of the configuration, in the order of their names,
// and the consumers of compensation messages. It owns their goroutines.
type Outboxes struct {
	outboxes  []*outboxRunner
	settler   *settler.Settler            // nil if there is no outbox
	consumers []func(ctx context.Context) // of compensation messages
	logger    *slog.Logger

	taking, relaying, settling context.CancelFunc
	consuming, relays          sync.WaitGroup
	settled                    sync.WaitGroup
	halted                     chan struct{}
}

// OutboxesConfig is what outboxes run with. All fields are required.
type OutboxesConfig struct {
	Config  *config.Config
	Queues  *Queues
	Sinks   map[string]sinks.Sink
	Metrics *telemetry.Metrics
	Logger  *slog.Logger
}

// sinkOf is the kind of broker that a queue publishes to.
func (p OutboxesConfig) sinkOf(q *queue) message.SinkType {
	return p.Config.Sinks[q.inForce.Load().Sink].Type
}

// NewOutboxes makes them; it does no I/O. The queues must not have started.
func NewOutboxes(p OutboxesConfig) (*Outboxes, error) {
	p.Logger = p.Logger.With("instance", p.Config.Instance)
	set := &Outboxes{logger: p.Logger, halted: make(chan struct{})}
	if err := set.open(p); err != nil {
		return nil, err
	}
	var err error
	set.consumers, err = newConsumers(p, set.rows())
	return set, err
}

// open makes the relays, and connects the pollers to the settler.
func (set *Outboxes) open(p OutboxesConfig) error {
	if len(p.Config.Outbox) == 0 {
		return nil
	}
	clock := &redisClock{queues: p.Queues.all()}
	var databases []settler.Database
	for _, name := range slices.Sorted(maps.Keys(p.Config.Outbox)) {
		r, err := newOutboxRunner(p, clock, name)
		if err != nil {
			return fmt.Errorf("outbox %s: %w", name, err)
		}
		set.outboxes = append(set.outboxes, r)
		databases = append(databases, settler.Database{Database: r.database, OnSettled: r.metrics.Settled})
	}
	ledgers := make([]settler.Queue, len(p.Queues.all()))
	for i, q := range p.Queues.all() {
		ledgers[i] = settler.Queue{Name: q.store.Name(), Store: q.store.Rows(), Held: q.polled}
	}
	var err error
	set.settler, err = settler.New(settler.Config{Databases: databases, Queues: ledgers, Logger: p.Logger})
	if err != nil {
		return err
	}
	for _, q := range p.Queues.all() {
		q.tellRows(set.settler, set.reborn)
	}
	for _, r := range set.outboxes {
		if err := r.audit(p, set.outboxes, set.settler); err != nil {
			return fmt.Errorf("outbox %s: %w", r.name, err)
		}
	}
	return nil
}

// Start begins in the background: an unreachable database is no reason to fail.
func (set *Outboxes) Start(ctx context.Context) {
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
	for _, consume := range set.consumers {
		set.consuming.Go(func() { consume(taking) })
	}
}

// Halt makes everything stop taking work, and does not wait: the pollers drain
// meanwhile. The consumers stop first, since they use the relays.
func (set *Outboxes) Halt() {
	set.taking()
	go func() { // Finish waits for it, but for a database that hangs.
		defer close(set.halted)
		set.consuming.Wait()
		set.relaying()
		set.relays.Wait()
	}()
}

// Finish waits for the stop that Halt has begun, and then tells the rows what
// the pollers have published last. The next instance does the rest.
func (set *Outboxes) Finish(ctx context.Context) {
	timer := time.NewTimer(relayPatience)
	defer timer.Stop()
	select {
	case <-set.halted:
	case <-timer.C:
		set.logger.Warn("outbox relays did not end in time, their last work will be repeated", "event", "drain")
	}
	set.settling()
	set.settled.Wait()
	if set.settler != nil {
		flush, cancel := context.WithTimeout(ctx, flushPatience)
		defer cancel()
		if err := set.settler.Flush(flush); err != nil {
			set.logger.Warn("rows do not have the last acknowledgements, other bridges will record them", "event", "drain", "err", err)
		}
	}
}

// reborn is called when Redis has lost messages of a queue.
func (set *Outboxes) reborn(queue string) {
	for _, r := range set.outboxes {
		r.auditor.Suspect(queue)
	}
}

// Close closes the databases, after everything.
func (set *Outboxes) Close() error {
	var problems []error
	for _, r := range set.outboxes {
		problems = append(problems, r.database.Close())
	}
	return errors.Join(problems...)
}

// Checks are the databases' lines of /readyz.
func (set *Outboxes) Checks() []admin.Check {
	checks := make([]admin.Check, len(set.outboxes))
	for i, r := range set.outboxes {
		checks[i] = admin.Check{Name: "outbox " + r.name, OK: true}
		if err := r.relay.State(); err != nil {
			checks[i].OK, checks[i].Detail = false, err.Error()
		}
	}
	return checks
}
