package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	rabbitmqsink "github.com/delaybridge/delaybridge/internal/sinks/rabbitmq"
)

// rabbitPrefetch is how many unacknowledged messages a bridge holds.
const rabbitPrefetch = 2 * batchMax

var errForeign = errors.New("the exchange sends messages of other topics here, so its queues are no longer bound: it must be a direct or topic exchange")

// RabbitMQ is a [Source]: a durable queue with the topic's name, bound to the
// sink's exchange by the topic, with manual acknowledgements. A queue of that
// name that exists is taken as it is.
//
// A quorum queue drops, or dead-letters, what was delivered too often: 20 times by
// default from RabbitMQ 4 on. Each connection that ends with messages in hand costs
// one of these. So nothing is taken before Redis has answered this bridge once, and
// what waits is held, through the broker's own timeout for acknowledgements and
// every loss of the connection: the next one is made only once some of it is done.
type RabbitMQ struct {
	config rabbitmqsink.Config
	Options
	// foreign is set when the exchange turns out to be no direct or topic
	// exchange: bound to it, our queues would fill with copies of everything.
	foreign bool
}

// NewRabbitMQ checks the options; the first connection checks the configuration,
// as the sink has done.
func NewRabbitMQ(config rabbitmqsink.Config, options Options) (*RabbitMQ, error) {
	if err := options.check(); err != nil {
		return nil, err
	}
	return &RabbitMQ{config: config, Options: options}, nil
}

// Run implements [Source].
func (r *RabbitMQ) Run(ctx context.Context, handle Handler) {
	reconnect(ctx, &r.Options, func(ctx context.Context) error { return r.session(ctx, handle) })
}

func (r *RabbitMQ) session(ctx context.Context, handle Handler) error {
	conn, err := r.config.Dial(ctx)
	if err != nil {
		return err
	}
	// Unacknowledged messages go back to the queue when the connection closes.
	defer func() { _ = conn.CloseDeadline(time.Now().Add(time.Second)) }()
	// The driver's calls know no context: they end with the connection.
	stop := context.AfterFunc(ctx, func() { _ = conn.CloseDeadline(time.Now().Add(time.Second)) })
	channel, err := r.setUp(ctx, conn)
	// From here on ctx ends the session by way of the deliveries.
	if inTime := stop(); err == nil && !inTime {
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	closed := channel.NotifyClose(make(chan *amqp.Error, 1))
	connected, lost := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() { // It ends with the channel, which the session closes.
		defer close(ended)
		if err, ok := <-closed; ok && err != nil {
			lost(err)
		}
		lost(errors.New("channel closed"))
	}()
	defer func() {
		_ = conn.CloseDeadline(time.Now().Add(time.Second))
		<-ended
		lost(nil)
	}()
	if !r.awaitReady(connected) {
		return context.Cause(connected)
	}
	deliveries, err := channel.Consume(r.Topic, r.Group+"-"+randomName(), false, false, false, false, nil)
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	r.connected(ctx)
	err = r.consume(ctx, connected, deliveries, handle)
	if errors.Is(err, errForeign) && !r.foreign {
		r.foreign = true
		err = errors.Join(err, r.unbind(conn))
	}
	return err
}

// unbind undoes what makeQueue bound. The copies in the queues are nobody else's.
func (r *RabbitMQ) unbind(conn *amqp.Connection) error {
	channel, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open channel: %w", err)
	}
	for _, name := range []string{r.Topic, DeadTopic(r.Topic)} {
		if err := channel.QueueUnbind(name, name, r.config.Exchange, nil); err != nil {
			return fmt.Errorf("unbind queue %s: %w", name, err)
		}
	}
	return nil
}

// setUp makes the queues and returns a channel to consume from.
func (r *RabbitMQ) setUp(ctx context.Context, conn *amqp.Connection) (*amqp.Channel, error) {
	for _, name := range []string{r.Topic, DeadTopic(r.Topic)} {
		if err := r.makeQueue(conn, name); err != nil {
			return nil, err
		}
	}
	channel, err := conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open channel: %w", err)
	}
	if err := channel.Qos(rabbitPrefetch, 0, false); err != nil {
		return nil, fmt.Errorf("set prefetch: %w", err)
	}
	return channel, ctx.Err()
}

// makeQueue makes a queue that is missing; to declare one that exists with
// other arguments would be refused.
func (r *RabbitMQ) makeQueue(conn *amqp.Connection, name string) error {
	channel, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open channel: %w", err)
	}
	if _, err := channel.QueueDeclarePassive(name, true, false, false, false, nil); err != nil {
		if refusal := new(amqp.Error); !errors.As(err, &refusal) || refusal.Code != amqp.NotFound {
			return fmt.Errorf("look for queue %s: %w", name, err)
		}
		if channel, err = conn.Channel(); err != nil { // The answer has closed the other.
			return fmt.Errorf("open channel: %w", err)
		}
		if _, err := channel.QueueDeclare(name, true, false, false, false, nil); err != nil {
			return fmt.Errorf("make queue %s: %w", name, err)
		}
	}
	if r.config.Exchange != "" && !r.foreign {
		if err := channel.QueueBind(name, name, r.config.Exchange, false, nil); err != nil {
			return fmt.Errorf("bind queue %s: %w", name, err)
		}
	}
	return channel.Close()
}

// awaitReady is false where ctx has ended first.
func (r *RabbitMQ) awaitReady(ctx context.Context) bool {
	pause := wait.Backoff{Initial: firstPause, Limit: longPause}
	for r.Ready != nil && r.Ready(ctx) != nil {
		if !wait.Sleep(ctx, pause.Next()) {
			return false
		}
	}
	return ctx.Err() == nil
}

// consume takes messages while it is connected. What it has in hand then it hands
// to the handler until something of it is done, which ctx alone ends.
func (r *RabbitMQ) consume(ctx, connected context.Context, deliveries <-chan amqp.Delivery, handle Handler) error {
	for {
		batch, err := r.gather(connected, deliveries)
		if err != nil {
			return err
		}
		list := make([]*Delivery, len(batch))
		for i := range batch {
			list[i] = &Delivery{Body: batch[i].Body, Redelivered: batch[i].Redelivered}
		}
		err = attend(ctx, list, handle, func(_ context.Context, indices []int) error {
			for _, i := range indices {
				if err := batch[i].Ack(false); err != nil {
					return fmt.Errorf("acknowledge: %w", err)
				}
			}
			return nil
		})
		if err != nil {
			return errors.Join(err, context.Cause(connected))
		}
	}
}

// gather waits for one delivery and takes those with it that are here already.
func (r *RabbitMQ) gather(ctx context.Context, deliveries <-chan amqp.Delivery) (batch []amqp.Delivery, err error) {
	for len(batch) < batchMax {
		var (
			d  amqp.Delivery
			ok bool
		)
		if len(batch) == 0 {
			select {
			case d, ok = <-deliveries:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		} else {
			select {
			case d, ok = <-deliveries:
			default:
				return batch, nil
			}
		}
		if !ok {
			return nil, errors.New("deliveries ended")
		}
		// A fanout exchange would send here what we bury, too, and for ever.
		if d.RoutingKey != r.Topic {
			if !r.foreign {
				return nil, errForeign
			}
			if err := d.Ack(false); err != nil {
				return nil, fmt.Errorf("drop a copy: %w", err)
			}
			continue
		}
		batch = append(batch, d)
	}
	return batch, nil
}
