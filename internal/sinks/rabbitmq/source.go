package rabbitmq

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

// prefetchBatches bounds the unacknowledged messages that a bridge holds.
const prefetchBatches = 2

var errForeign = errors.New("the exchange sends messages of other topics here, so its queues are no longer bound: it must be a direct or topic exchange")

// consumed are the messages of one topic: a queue with the topic's name, with manual
// acknowledgements. For compensations it is durable, and bound to the sink's exchange by the topic;
// a queue of that name that exists is taken as it is, and so is that of an inlet.
//
// A quorum queue drops, or dead-letters, what was delivered too often: 20 times by
// default from RabbitMQ 4 on. Each connection that ends with messages in hand costs
// one of these. So nothing is taken before Redis has answered this bridge once, and
// what waits is held, through the broker's own timeout for acknowledgements and
// every loss of the connection: the next one is made only once some of it is done.
type consumed struct {
	config Config
	source.Options
	// foreign is set when the exchange turns out to be no direct or topic
	// exchange: bound to it, our queues would fill with copies of everything.
	foreign bool
}

// Source implements [kind.Consumed].
func (c Config) Source(options source.Options) (source.Source, error) {
	if err := options.Check(); err != nil {
		return nil, err
	}
	return &consumed{config: c, Options: options}, nil
}

// Run implements [source.Source].
func (s *consumed) Run(ctx context.Context, handle source.Handler) {
	source.Reconnect(ctx, &s.Options, func(ctx context.Context) error { return s.session(ctx, handle) })
}

func (s *consumed) session(ctx context.Context, handle source.Handler) error {
	conn, err := s.config.Dial(ctx)
	if err != nil {
		return err
	}
	// Unacknowledged messages go back to the queue when the connection closes.
	defer func() { _ = conn.CloseDeadline(time.Now().Add(time.Second)) }()
	// The driver's calls know no context: they end with the connection.
	stop := context.AfterFunc(ctx, func() { _ = conn.CloseDeadline(time.Now().Add(time.Second)) })
	channel, err := s.setUp(ctx, conn)
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
	stopTelling := func() {}
	defer func() {
		_ = conn.CloseDeadline(time.Now().Add(time.Second))
		<-ended
		stopTelling() // A question ends with the connection.
		lost(nil)
	}()
	if !s.AwaitReady(connected) {
		return context.Cause(connected)
	}
	deliveries, err := channel.Consume(s.Topic, s.Group+"-"+strings.ToLower(rand.Text()[:8]), false, false, false, false, nil)
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	s.Connected(ctx)
	stopTelling = s.tellWaits(conn)
	err = s.consume(ctx, connected, deliveries, handle)
	if errors.Is(err, errForeign) && !s.foreign {
		s.foreign = true
		err = errors.Join(err, s.unbind(conn))
	}
	return err
}

// Find implements [source.Finder].
func (s *consumed) Find(ctx context.Context) error {
	conn, err := s.config.Dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseDeadline(time.Now().Add(time.Second)) }()
	defer context.AfterFunc(ctx, func() { _ = conn.CloseDeadline(time.Now().Add(time.Second)) })()
	channel, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open channel: %w", err)
	}
	if _, err := channel.QueueDeclarePassive(s.Topic, true, false, false, false, nil); err != nil {
		return fmt.Errorf("look for queue %s: %w", s.Topic, err)
	}
	return nil
}

// waitsEvery is how often the broker is asked how many messages wait.
const waitsEvery = 5 * time.Second

// tellWaits tells from time to time how many messages wait, over a channel of its own: a
// refusal would close it.
func (s *consumed) tellWaits(conn *amqp.Connection) (stop func()) {
	if s.Waits == nil {
		return func() {}
	}
	channel, err := conn.Channel()
	if err != nil {
		return func() {} // So the connection is lost.
	}
	tell := func() {
		if queue, err := channel.QueueDeclarePassive(s.Topic, true, false, false, false, nil); err == nil {
			s.TellWaits(int64(queue.Messages))
		}
	}
	return source.Beat(waitsEvery, tell)
}

// unbind undoes the bindings of makeQueue. The copies in the queues are ours alone.
func (s *consumed) unbind(conn *amqp.Connection) error {
	channel, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open channel: %w", err)
	}
	for _, name := range []string{s.Topic, source.DeadTopic(s.Topic)} {
		if err := channel.QueueUnbind(name, name, s.config.Exchange, nil); err != nil {
			return fmt.Errorf("unbind queue %s: %w", name, err)
		}
	}
	return nil
}

// setUp makes the queues and returns a channel to consume from.
func (s *consumed) setUp(ctx context.Context, conn *amqp.Connection) (*amqp.Channel, error) {
	if s.Inlet == "" {
		for _, name := range []string{s.Topic, source.DeadTopic(s.Topic)} {
			if err := s.makeQueue(conn, name); err != nil {
				return nil, err
			}
		}
	}
	channel, err := conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("open channel: %w", err)
	}
	if err := channel.Qos(prefetchBatches*s.BatchOr(), 0, false); err != nil {
		return nil, fmt.Errorf("set prefetch: %w", err)
	}
	return channel, ctx.Err()
}

// makeQueue makes a queue that is missing; to declare one that exists with
// other arguments would be refused.
func (s *consumed) makeQueue(conn *amqp.Connection, name string) error {
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
	if s.config.Exchange != "" && !s.foreign {
		if err := channel.QueueBind(name, name, s.config.Exchange, false, nil); err != nil {
			return fmt.Errorf("bind queue %s: %w", name, err)
		}
	}
	return channel.Close()
}

// consume takes messages while it is connected. What it has in hand then it hands
// to the handler until something of it is done, which ctx alone ends.
func (s *consumed) consume(ctx, connected context.Context, deliveries <-chan amqp.Delivery, handle source.Handler) error {
	for {
		batch, err := s.gather(connected, deliveries)
		if err != nil {
			return err
		}
		list := make([]*source.Delivery, len(batch))
		for i := range batch {
			list[i] = &source.Delivery{Body: batch[i].Body, Redelivered: batch[i].Redelivered}
			if s.Inlet != "" {
				list[i].Origin = originOf(&batch[i])
			}
		}
		err = source.Attend(ctx, list, handle, func(_ context.Context, indices []int) error {
			isWhole := len(indices) == len(batch) // All before it are acknowledged.
			if isWhole {
				indices = indices[len(indices)-1:]
			}
			for _, i := range indices {
				if err := batch[i].Ack(isWhole); err != nil {
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

// gatherTime is how long a batch waits for deliveries that the broker has sent already: the driver hands
// them over one by one.
const gatherTime = 5 * time.Millisecond

// gather waits for one delivery and takes those with it that are here soon.
func (s *consumed) gather(ctx context.Context, deliveries <-chan amqp.Delivery) (batch []amqp.Delivery, err error) {
	var soon <-chan time.Time // nil before the first
	for len(batch) < s.BatchOr() {
		var (
			d  amqp.Delivery
			ok bool
		)
		select {
		case d, ok = <-deliveries:
		case <-soon:
			return batch, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if soon == nil {
			timer := time.NewTimer(gatherTime)
			defer timer.Stop()
			soon = timer.C
		}
		if !ok {
			return nil, errors.New("deliveries ended")
		}
		// A fanout exchange would send here what we bury, too, and for ever.
		if s.Inlet == "" && d.RoutingKey != s.Topic {
			if !s.foreign {
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
