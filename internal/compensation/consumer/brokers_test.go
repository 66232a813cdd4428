package consumer_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/testenv"
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
