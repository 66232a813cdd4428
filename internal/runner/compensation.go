package runner

import (
	"context"
	"errors"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/compensation/consumer"
	"github.com/delaybridge/delaybridge/internal/outbox/relay"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// newConsumers makes a consumer of compensation messages for each queue that has a topic
// for them. Each runs until its ctx ends, through every outage.
func newConsumers(p OutboxesConfig, rows consumer.Rows) (consumers []func(ctx context.Context), err error) {
	for _, q := range p.Queues.all() {
		name := q.store.Name()
		topic := p.Config.CompensationTopic(name)
		if topic == "" {
			continue
		}
		sink := q.inForce.Load().Sink
		logger := p.Logger.With("queue", name, "sink", sink)
		writer := consumer.NewWriter(consumer.WriterConfig{
			Store: q.store.Rows(), Rows: rows, Dead: p.Sinks[sink], Topic: topic, Observer: compensationCounter{p.Metrics}, Logger: logger,
		})
		messages, err := p.Config.Sinks[sink].Source("delaybridge-compensation-"+name, source.Options{
			Topic: topic, Group: source.Group(p.Config.Prefix, name), Ready: writer.Ready, Logger: logger,
		})
		if err != nil {
			return nil, fmt.Errorf("compensations of queue %s: %w", name, err)
		}
		consumers = append(consumers, func(ctx context.Context) { messages.Run(ctx, writer.Handle) })
	}
	return consumers, nil
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
