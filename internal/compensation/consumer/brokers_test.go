package consumer_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func testenvRabbit(t testing.TB) string { return testenv.RabbitMQ(t) }

func randomSuffix(t testing.TB) string { return testenv.Name(t, "") }

func amqpChannel(t testing.TB) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(testenv.RabbitMQ(t))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	channel, err := conn.Channel()
	require.NoError(t, err)
	return channel
}

// TestStreamOfOthers: a stream that binds the subject is used as it is.
func TestStreamOfOthers(t *testing.T) {
	t.Parallel()
	url := testenv.NATS(t)
	p := natsBroker(url).place(t)
	nc, err := nats.Connect(url)
	require.NoError(t, err)
	defer nc.Close()
	js, err := jetstream.New(nc)
	require.NoError(t, err)
	name := testenv.Name(t, "theirs")
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{p.topic, p.topic + ".>"}})
	require.NoError(t, err)
	r := newRecorder(nil)
	p.start(t, r.handle)
	publish(t, p.openSink(t), p.topic, "a")
	r.awaitAll(t, "a")
	stream, err := js.Stream(t.Context(), name)
	require.NoError(t, err)
	_, err = stream.Consumer(t.Context(), p.group)
	require.NoError(t, err, "the consumer is on their stream")
}

// unroutable reports whether the exchange sends back what is published to it.
func unroutable(channel *amqp.Channel, returns <-chan amqp.Return, exchange string) bool {
	confirmation, err := channel.PublishWithDeferredConfirm(exchange, "any", true, false, amqp.Publishing{})
	if err != nil {
		return false
	}
	<-confirmation.Done()
	select {
	case <-returns:
		return true
	default:
		return false
	}
}

// TestInWorkForLong: while one bridge waits for Redis, for longer than the
// server waits for an acknowledgement, no other gets the message.
func TestInWorkForLong(t *testing.T) {
	t.Parallel()
	p := natsBroker(testenv.NATS(t)).place(t)
	var since atomic.Int64
	first, second := newRecorder(func(string) error {
		since.CompareAndSwap(0, time.Now().UnixNano())
		if time.Since(time.Unix(0, since.Load())) < 12*time.Second {
			return errors.New("redis is away")
		}
		return nil
	}), newRecorder(nil)
	p.start(t, first.handle)
	publish(t, p.openSink(t), p.topic, "a")
	first.awaitAll(t, "a")
	p.start(t, second.handle)
	require.Eventually(t, func() bool {
		return time.Since(time.Unix(0, since.Load())) > 13*time.Second
	}, patience, 100*time.Millisecond)
	require.Empty(t, second.seen())
	require.Empty(t, first.redelivered())
}

// limitedQueue is a quorum queue that keeps what was delivered twice, and no
// oftener; the broker drops it then.
func limitedQueue(t *testing.T) place {
	t.Helper()
	p := rabbitBroker(testenv.RabbitMQ(t), "").place(t)
	_, err := amqpChannel(t).QueueDeclare(p.topic, true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 1})
	require.NoError(t, err)
	return p
}

// TestDeliveryLimit: while a message waits, the loss of connections costs it one
// delivery, however often they are lost.
func TestDeliveryLimit(t *testing.T) {
	t.Parallel()
	p := limitedQueue(t)
	publish(t, p.openSink(t), p.topic, "a")
	var back atomic.Bool
	r := newRecorder(func(string) error {
		if !back.Load() {
			return errors.New("redis is away")
		}
		return nil
	})
	_, address, _ := strings.Cut(testenv.RabbitMQ(t), "@")
	proxy := testenv.NewProxy(t, strings.Trim(address, "/"))
	cut := p
	cut.broker = rabbitBroker("amqp://guest:guest@"+proxy.Addr()+"/", "")
	stop := cut.start(t, r.handle)
	r.awaitAll(t, "a")
	for range 3 {
		proxy.Cut()
		tried := len(r.seen())
		r.await(t, "it is tried again", func(seen []string) bool { return len(seen) > tried+5 })
	}
	require.Empty(t, r.redelivered())
	back.Store(true)
	r.await(t, "the broker delivers it again", func([]string) bool { return len(r.redelivered()) > 0 })
	stop()
	queue, err := amqpChannel(t).QueueDeclarePassive(p.topic, true, false, false, false, nil)
	require.NoError(t, err)
	require.Zero(t, queue.Messages, "it is acknowledged")
}

// TestDeliveryLimitAndRestarts: bridges that start while Redis is away cost no delivery.
func TestDeliveryLimitAndRestarts(t *testing.T) {
	t.Parallel()
	p := limitedQueue(t)
	publish(t, p.openSink(t), p.topic, "a")
	r := newRecorder(nil)
	for range 3 {
		asked := make(chan struct{})
		stop := p.startWhen(t, func(ctx context.Context) error {
			select {
			case asked <- struct{}{}:
			case <-ctx.Done():
			}
			return errors.New("redis is away")
		}, r.handle)
		for range 3 {
			select {
			case <-asked:
			case <-time.After(patience):
				require.Fail(t, "it does not ask")
			}
		}
		stop()
	}
	require.Empty(t, r.seen())
	p.startWhen(t, func(context.Context) error { return nil }, r.handle)
	r.awaitAll(t, "a")
	require.Empty(t, r.redelivered())
}
