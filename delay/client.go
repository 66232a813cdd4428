package delay

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/compensation"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/tracing"
)

// Client schedules messages in one queue. It is safe for concurrent use, owns
// no goroutine and no connection, and needs no Close.
type Client struct {
	store *store.Queue
	queue *store.Producer
	spans *tracing.Schedules
	looks lookBudget
	options

	confirm store.Durability // of all calls
}

// NewClient returns a client for the named queue in the Redis that rdb is
// connected to. It does no I/O; the first call loads the queue's layout. Its
// only error is [ErrInvalid].
func NewClient(rdb redis.UniversalClient, queue string, opts ...Option) (*Client, error) {
	o := options{prefix: "delay", timeout: 10 * time.Second}
	for _, set := range opts {
		set(&o)
	}
	switch {
	case rdb == nil:
		return nil, invalid("rdb", "nil", "a client of go-redis")
	case !message.QueueName.MatchString(queue):
		return nil, invalid("queue", queue, message.QueueNameRule)
	case o.prefix == "":
		return nil, invalid("prefix", "", "at least one byte")
	case !message.KeyPrefix.MatchString(o.prefix):
		return nil, invalid("prefix", o.prefix, message.KeyPrefixRule)
	case !o.conflict.isKnown():
		return nil, invalidConflict(o.conflict)
	case o.durable < 0 && o.durable != Fsync:
		return nil, invalid("durability", strconv.Itoa(int(o.durable)), "0 replicas or more")
	case o.timeout <= 0 || o.timeout > store.MaxCall:
		return nil, invalid("timeout", o.timeout.String(), "more than 0, at most "+store.MaxCall.String())
	case o.maxSize < 0:
		return nil, invalid("max size", strconv.Itoa(o.maxSize), "0 bytes or more")
	case o.extras.encrypted && o.extras.keys == nil:
		return nil, invalid("encryption", "nil", "a keyring")
	}
	if o.compensation.topic == "" {
		o.compensation.topic = compensation.Topic(queue)
	}
	q := store.New(rdb, o.prefix, queue)
	if o.extras.logger != nil {
		q.WithRepetitions((&repeatedLog{logger: o.extras.logger.With("queue", queue)}).add)
	}
	if !o.alone {
		q.WithCoalescing()
	}
	return &Client{store: q, queue: q.Producer(), spans: tracing.NewSchedules(o.extras.tracers, queue), options: o, confirm: o.durable.wait()}, nil
}

// begin bounds a call.
func (c *Client) begin(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.timeout)
}

// layout loads the queue's layout if it is not loaded yet.
func (c *Client) layout(ctx context.Context) (*store.Layout, error) {
	layout, err := c.queue.AwaitLayout(ctx)
	if err != nil {
		return nil, fmt.Errorf("queue %s: %w", c.queue.Name(), err)
	}
	return layout, nil
}
