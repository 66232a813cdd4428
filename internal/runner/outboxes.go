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
// and the consumers of compensation messages. It owns their goroutines. The set of queues may change
// while it runs; the outboxes may not.
type Outboxes struct {
	config    OutboxesConfig
	outboxes  []*outboxRunner
	settler   *settler.Settler        // nil if there is no outbox
	consumers map[string]*compensator // of compensation messages, by queue
	logger    *slog.Logger

	taking                     context.Context //nolint:containedctx // Consumers that come later run in it. It is nil until Start.
	untake, relaying, settling context.CancelFunc
	consuming, relays, settles sync.WaitGroup
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
	return p.Config.Sinks[q.inForce.Load().Sink].Type // Sinks do not change.
}

// NewOutboxes makes them, and has them follow the queues; it does no I/O. The queues must not have started.
func NewOutboxes(p OutboxesConfig) (*Outboxes, error) {
	p.Logger = p.Logger.With("instance", p.Config.Instance)
	set := &Outboxes{config: p, logger: p.Logger, halted: make(chan struct{})}
	if err := set.open(p); err != nil {
		return nil, err
	}
	var err error
	if set.consumers, err = set.newConsumers(p.Config, p.Queues.all()); err != nil {
		return nil, err
	}
	p.Queues.addOutboxes(set)
	return set, nil
}

// open makes the relays, and connects the pollers to the settler.
func (set *Outboxes) open(p OutboxesConfig) error {
	if len(p.Config.Outbox) == 0 {
		return nil
	}
	clock := &redisClock{queues: p.Queues.all}
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
		ledgers[i] = q.asLedger()
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
	var relaying, settling context.Context
	set.taking, set.untake = context.WithCancel(background)
	relaying, set.relaying = context.WithCancel(background)
	settling, set.settling = context.WithCancel(background)
	if set.settler != nil {
		set.settles.Go(func() { _ = set.settler.Run(settling) }) // It returns nil.
	}
	for _, r := range set.outboxes {
		set.relays.Go(func() { r.run(relaying) })
	}
	for _, c := range set.consumers {
		set.consume(c, nil) //nolint:contextcheck // It runs until Halt.
	}
}

// prepare makes what other queues need. commit puts it in force, before any of them starts, and does not block.
func (set *Outboxes) prepare(next *config.Config, gone []string, come map[string]*queue) (commit func(), err error) {
	queues := make([]*queue, 0, len(come))
	for _, name := range slices.Sorted(maps.Keys(come)) {
		queues = append(queues, come[name])
	}
	consumers, err := set.newConsumers(next, queues)
	if err != nil {
		return nil, err
	}
	return func() {
		if set.settler != nil {
			set.serve(gone, queues)
		}
		for _, name := range gone {
			if old := set.consumers[name]; old != nil && old.stop != nil {
				old.stop()
			}
		}
		for name, c := range consumers {
			set.consume(c, set.consumers[name])
		}
		for _, name := range gone {
			delete(set.consumers, name)
		}
		maps.Copy(set.consumers, consumers)
	}, nil
}

// serve has relays and auditors leave queues, and take others. The settler knows those that are gone until they have drained.
func (set *Outboxes) serve(gone []string, come []*queue) {
	for _, q := range come {
		q.tellRows(set.settler, set.reborn)
		set.settler.Add(q.asLedger())
	}
	for _, r := range set.outboxes {
		r.serve(gone, come)
	}
}

// flush tells the rows what a queue has published last, for a while. The ledgers keep the rest.
func (set *Outboxes) flush(ctx context.Context) {
	if set.settler == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, flushPatience)
	defer cancel()
	if err := set.settler.Flush(ctx); err != nil {
		set.logger.Warn("rows do not have the last acknowledgements, other bridges will record them", "event", "drain", "err", err)
	}
}

// removed has the settler leave a queue that has drained, and that none follows.
func (set *Outboxes) removed(queue string) {
	if set.settler != nil {
		set.settler.Remove(queue)
	}
}

// Halt makes everything stop taking work, and does not wait: the pollers drain
// meanwhile. The consumers stop first, since they use the relays.
func (set *Outboxes) Halt() {
	set.untake()
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
	set.settles.Wait()
	set.flush(ctx)
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
