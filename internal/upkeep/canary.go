package upkeep

import (
	"context"
	"errors"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// canaryID is the id of all canaries of a queue, so at most one waits.
const canaryID = "delaybridge-canary"

// Canary sends a message through a queue now and then, on the path of all others. The
// queue's keeper schedules it, and the instance that publishes it reports it.
type Canary struct {
	queue  *Queue
	config config.Canary
	client *delay.Client
}

// NewCanary returns a canary that was not sent yet, and makes its metrics. The client has
// the policy [delay.Keep].
func NewCanary(queue *Queue, client *delay.Client) *Canary {
	queue.Metrics.AddCanary(queue.Store.Name())
	return &Canary{queue: queue, config: queue.Config().Canary, client: client}
}

// Run sends it again and again until ctx ends.
func (c *Canary) Run(ctx context.Context) {
	turns := rounds{every: c.config.Every, event: "canary", fails: "canary not scheduled", logger: c.queue.Logger.With("topic", c.config.Topic)}
	turns.run(ctx, c.Turn)
}

// Turn schedules a canary, unless the previous one still waits.
func (c *Canary) Turn(ctx context.Context) error {
	if !c.queue.IsKeeper() {
		return nil
	}
	ref := delay.Ref{ID: canaryID}
	_, err := c.client.Schedule(ctx, delay.Message{
		ID: ref.ID, Topic: c.config.Topic, Headers: map[string]string{canaryID: c.queue.Store.Name()}, Body: []byte("{}"),
	}, delay.After(0))
	if errors.Is(err, delay.ErrDuplicate) { // A dead letter has the id: remove it for the next one.
		return errors.Join(err, c.client.Cancel(ctx, ref))
	}
	return err
}

// Published is called for each message of the queue that was given to the sink.
func (c *Canary) Published(claimed *message.ClaimedMessage, _ time.Time, report *sinks.Report, lateness time.Duration) {
	if claimed.ID == canaryID && claimed.Key == "" && report.Class == sinks.Acknowledged {
		c.queue.Metrics.CanaryArrived(c.queue.Store.Name(), lateness)
	}
}
