package runner

import (
	"context"
	"errors"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/compensation/consumer"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/outbox/relay"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// compensator consumes the compensation messages of a queue.
type compensator struct {
	run func(ctx context.Context) // until ctx ends, through every outage
	// Of one that runs.
	stop  context.CancelFunc
	ended chan struct{}
}

// newConsumers makes a consumer for each of the queues that has a topic for compensation messages.
func (set *Outboxes) newConsumers(cfg *config.Config, queues []*queue) (consumers map[string]*compensator, err error) {
	consumers = map[string]*compensator{}
	p := set.config
	for _, q := range queues {
		name := q.store.Name()
		topic := cfg.CompensationTopic(name)
		if topic == "" {
			continue
		}
		sink := q.inForce.Load().Sink
		logger := p.Logger.With("queue", name, "sink", sink)
		writer := consumer.NewWriter(consumer.WriterConfig{
			Store: q.store.Rows(), Rows: set.rows(), Dead: p.Sinks[sink], Topic: topic, Observer: compensationCounter{p.Metrics}, Logger: logger,
		})
		messages, err := cfg.Sinks[sink].Source("delaybridge-compensation-"+name, source.Options{
			Topic: topic, Group: source.Group(cfg.Prefix, name), Ready: writer.Ready, Logger: logger,
		})
		if err != nil {
			return nil, fmt.Errorf("compensations of queue %s: %w", name, err)
		}
		consumers[name] = &compensator{run: func(ctx context.Context) { messages.Run(ctx, writer.Handle) }}
	}
	return consumers, nil
}

// consume runs a consumer, as soon as the one before it has ended, which was told to; nil: there is none.
func (set *Outboxes) consume(c, before *compensator) {
	if set.taking == nil { // Start does it.
		return
	}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(set.taking)
	c.ended = make(chan struct{})
	set.consuming.Go(func() {
		defer close(c.ended)
		defer c.stop()
		if before != nil {
			<-before.ended
		}
		c.run(ctx)
	})
}

// compensationCounter counts for the metrics.
type compensationCounter struct{ metrics *telemetry.Metrics }

// Compensated implements [consumer.Observer].
func (c compensationCounter) Compensated(queue string, result consumer.Result) {
	c.metrics.Compensated(queue, string(result))
}

// rows finds the rows that compensation messages name; nil without an outbox.
func (set *Outboxes) rows() consumer.Rows {
	if len(set.outboxes) == 0 {
		return nil
	}
	return rowFinder(set.outboxes)
}

// rowFinder asks all databases: the message does not say which one has the row.
type rowFinder []*outboxRunner

var errLocked = errors.New("row is locked by another")

// TakeIdentity implements [consumer.Rows]. It does not ask a database that is
// known to be down: the caller has little time, and another one may have the row.
func (f rowFinder) TakeIdentity(ctx context.Context, queue, key, id string) (found bool, err error) {
	var problems []error
	for _, r := range f {
		err := r.relay.State()
		if err == nil {
			var taken relay.TakeResult
			if taken, err = r.relay.TakeIdentity(ctx, queue, key, id); taken == relay.TakeDone && err == nil {
				return true, nil
			}
			if taken == relay.TakeLocked {
				err = errors.Join(err, errLocked)
			}
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("outbox %s: %w", r.name, err))
		}
	}
	return false, errors.Join(problems...)
}
