package app

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// canaryID is the id of a queue's canaries. Since all of them have it, one waits at the most.
const canaryID = "delaybridge-canary"

// canary sends a message through a queue now and then, the way of all others. It is
// scheduled by the instance that keeps the queue, and seen by the one that publishes it.
// It owns no goroutine.
type canary struct {
	queue, topic string
	every        time.Duration
	client       *delay.Client
	// isKeeper reports whether this instance does what one instance does.
	isKeeper func() bool
	metrics  *telemetry.Metrics
	logger   *slog.Logger
	trouble  telemetry.Trouble
}

// run sends until ctx ends.
func (c *canary) run(ctx context.Context) {
	for wait.Sleep(ctx, c.every) {
		if !c.isKeeper() {
			continue
		}
		switch err := c.send(ctx); {
		case ctx.Err() != nil:
		case err == nil:
			c.trouble.Over()
		case c.trouble.News(rediserr.Cause(err)):
			c.logger.Warn("canary not scheduled, trying again", "event", "canary", "topic", c.topic, "err", err)
		}
	}
}

// send schedules one, unless the one before it waits still.
func (c *canary) send(ctx context.Context) error {
	ref := delay.Ref{ID: canaryID}
	_, err := c.client.Schedule(ctx, delay.Message{
		ID: ref.ID, Topic: c.topic, Headers: map[string]string{canaryID: c.queue}, Body: []byte("{}"),
	}, delay.After(0))
	if errors.Is(err, delay.ErrDuplicate) { // A dead letter has the id: it makes room for the next one.
		return errors.Join(err, c.client.Cancel(ctx, ref))
	}
	return err
}

// published is told of each message of the queue that was given to the sink.
func (c *canary) published(claimed *message.Claimed, _ time.Time, report *sinks.Report, lateness time.Duration) {
	if claimed.ID == canaryID && claimed.Key == "" && report.Class == sinks.Acknowledged {
		c.metrics.CanaryArrived(c.queue, lateness)
	}
}

// newCanary returns nil where the queue is to have none.
func newCanary(p queueParams, r *queueRunner, name string) (*canary, error) {
	cfg := p.Config.Queues[name].Canary
	if cfg.Topic == "" {
		return nil, nil //nolint:nilnil // There need not be one.
	}
	options := append(Sealing(p.Keys), delay.WithPrefix(p.Config.Prefix), delay.WithConflict(delay.Keep))
	client, err := delay.NewClient(p.Redis, name, options...)
	if err != nil {
		return nil, err
	}
	p.Metrics.AddCanary(name)
	return &canary{
		queue: name, topic: cfg.Topic, every: cfg.Every, client: client, isKeeper: r.member.IsKeeper, metrics: p.Metrics, logger: r.logger,
	}, nil
}

// publishedHook is what the queue's poller tells of each message; nil where nobody asks.
func publishedHook(traced func(*message.Claimed, time.Time, *sinks.Report, time.Duration), c *canary,
) func(*message.Claimed, time.Time, *sinks.Report, time.Duration) {
	switch {
	case c == nil:
		return traced
	case traced == nil:
		return c.published
	}
	return func(claimed *message.Claimed, began time.Time, report *sinks.Report, lateness time.Duration) {
		traced(claimed, began, report, lateness)
		c.published(claimed, began, report, lateness)
	}
}
