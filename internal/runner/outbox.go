package runner

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/auditor"
	"github.com/delaybridge/delaybridge/internal/outbox/relay"
	"github.com/delaybridge/delaybridge/internal/outbox/settler"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

const (
	// layoutPatience is how long a relay waits for the queues at the start, so that
	// it does not complain of queues that are just being made.
	layoutPatience = 10 * time.Second
	// unfitPause is the time between two checks of an unfit database.
	unfitPause = 5 * time.Second
	// unfitSaid is the time between two log lines about it.
	unfitSaid = 10 * time.Minute
)

// outboxRunner runs the relay of one outbox, and its auditor. It owns the
// goroutines that run starts.
type outboxRunner struct {
	name     string
	config   config.Outbox
	all      OutboxesConfig
	database *table.Database
	relay    *relay.Relay
	auditor  *auditor.Auditor
	metrics  *telemetry.Outbox
	logger   *slog.Logger
}

func newOutboxRunner(p OutboxesConfig, clock *redisClock, name string) (*outboxRunner, error) {
	cfg := p.Config.Outbox[name]
	r := &outboxRunner{name: name, config: cfg, all: p, logger: p.Logger.With("outbox", name)}
	var err error
	r.database, err = table.Open(table.Config{
		Dialect: cfg.Driver, Source: cfg.Source(), Table: cfg.Table, Connections: connections(cfg), Discard: cfg.Keep < time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	r.metrics = p.Metrics.AddOutbox(name, func() error { return r.relay.State() })
	new(auditor.Counts).Each(r.metrics.Audited) // An increase is seen only where a series was there before.
	r.relay, err = relay.New(relay.Config{
		Database: r.database, Queues: r.relayed(p.Queues.all()), Clock: clock.now, Horizon: cfg.Horizon, Poll: cfg.Poll, Keep: max(cfg.Keep, time.Millisecond), KeepOperations: cfg.KeepOperations,
		Batch: cfg.Batch, Lanes: cfg.Relays, Mine: func() bool { return p.Queues.all()[0].isFirst() }, Notify: cfg.Notify, Logger: r.logger, Observer: r.metrics,
	})
	return r, err
}

// connections counts one per lane, and some for upkeep, settling, compensation
// messages and the auditor, which holds none while it waits for one.
func connections(cfg config.Outbox) int { return cfg.Relays + 6 }

// audit makes the auditor; all are the outboxes of the configuration.
func (r *outboxRunner) audit(p OutboxesConfig, all []*outboxRunner, settling *settler.Settler) (err error) {
	var others []*table.Database
	for _, o := range all {
		if o != r {
			others = append(others, o.database)
		}
	}
	r.auditor, err = auditor.New(auditor.Config{
		Databases: []*table.Database{r.database}, Others: others, Queues: r.audited(p.Queues.all()), Flush: settling.Flush, Rate: r.config.Audit,
		Observe: func(c auditor.Counts) { c.Each(r.metrics.Audited) }, Watch: r.metrics.Watched, Unwatch: r.metrics.Unwatched,
		Logger: r.logger,
	})
	return err
}

// relayed are queues as the relay knows them.
func (r *outboxRunner) relayed(queues []*queue) []outbox.Queue {
	list := make([]outbox.Queue, len(queues))
	for i, q := range queues {
		list[i] = q.asOutbox(r.all.sinkOf(q))
	}
	return list
}

// audited are queues as the auditor knows them.
func (r *outboxRunner) audited(queues []*queue) []auditor.Queue {
	list := make([]auditor.Queue, len(queues))
	for i, q := range queues {
		list[i] = auditor.Queue{Queue: q.asOutbox(r.all.sinkOf(q)), Mine: q.isFirst}
	}
	return list
}

// serve has relay and auditor leave the rows of queues, and take those of others.
func (r *outboxRunner) serve(gone []string, come []*queue) {
	r.relay.Change(gone, r.relayed(come))
	r.auditor.Change(gone, r.audited(come))
}

// run works until ctx ends. An unfit database is logged as an error, but ends
// nothing: the other outboxes, and the messages that Redis has already, do not
// depend on it, and the tables may be made while the bridge runs.
func (r *outboxRunner) run(ctx context.Context) {
	var auditing sync.WaitGroup
	defer auditing.Wait()
	auditing.Go(func() {
		select {
		case <-r.relay.Ready():
			_ = r.auditor.Run(ctx) // It returns nil.
		case <-ctx.Done():
		}
	})
	r.awaitQueues(ctx)
	var said time.Time
	for {
		err := r.relay.Run(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(said) > unfitSaid {
			said = time.Now()
			r.logger.Error("outbox cannot be relayed, trying again every "+unfitPause.String(), "event", "outbox_unfit", "err", err)
		}
		if !wait.Sleep(ctx, unfitPause) {
			return
		}
	}
}

// awaitQueues waits until all queues have their layouts, for a while.
func (r *outboxRunner) awaitQueues(ctx context.Context) {
	timer := time.NewTimer(layoutPatience)
	defer timer.Stop()
	for _, q := range r.all.Queues.all() {
		select {
		case <-q.made:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// redisClock is the clock of Redis, asked through any of the queues.
type redisClock struct {
	queues func() []*queue

	mu   sync.Mutex
	next int // the queue that answered last
}

// clockPatience limits asking one queue, so that a Cluster node that is down does
// not stop the clock.
const clockPatience = 2 * time.Second

func (c *redisClock) now(ctx context.Context) (now time.Time, err error) {
	c.mu.Lock()
	first := c.next
	c.mu.Unlock()
	queues := c.queues()
	for i := range queues {
		at := (first + i) % len(queues)
		if now, err = c.ask(ctx, queues[at]); err == nil {
			c.mu.Lock()
			c.next = at
			c.mu.Unlock()
			return now, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return now, fmt.Errorf("read the clock: %w", err)
}

func (c *redisClock) ask(ctx context.Context, q *queue) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, clockPatience)
	defer cancel()
	return q.store.Clock(ctx)
}
