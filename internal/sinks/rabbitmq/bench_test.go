//go:build unix

package rabbitmq

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
)

const (
	benchBatches = 40 // of 500 messages
	benchCallers = 8
)

// BenchmarkPublish publishes 20,000 messages of 256 bytes in batches of 500,
// eight at a time, with the same headers by the sink and by the driver, over as
// many connections, to classic and quorum queues.
//
//	go test -run '^$' -bench Publish -benchtime 5x ./internal/sinks/rabbitmq
func BenchmarkPublish(b *testing.B) {
	url := testenv.RabbitMQ(b)
	for _, kind := range []string{"classic", "quorum"} {
		for _, connections := range []int{1, 4} {
			for name, key := range sinktest.Keys {
				b.Run(fmt.Sprintf("%s/%d_connections/%s", kind, connections, name), func(b *testing.B) {
					sink := newSink(b, Config{Name: "bench", URL: url, Connections: connections})
					sinktest.Beside(b, benchCallers, func() [][]message.Message { return makeBatches(b, url, kind, key) },
						sinktest.Through(b, sink),
						sinktest.Side{Name: "driver", Publish: plainPublish(b, url, connections)})
				})
			}
		}
	}
}

// plainPublish publishes over one channel a connection, as many batches at a
// time as there are callers.
func plainPublish(b *testing.B, url string, connections int) func([]message.Message) {
	b.Helper()
	channels := make(chan *amqp.Channel, benchCallers)
	for range connections {
		channel := open(b, url)
		require.NoError(b, channel.Confirm(false))
		for range benchCallers / connections {
			channels <- channel
		}
	}
	return func(batch []message.Message) {
		channel := <-channels
		defer func() { channels <- channel }()
		confirmations := make([]*amqp.DeferredConfirmation, len(batch))
		for i := range batch {
			var err error
			if confirmations[i], err = channel.PublishWithDeferredConfirm("", batch[i].Topic, true, false, plainPublishing(&batch[i])); err != nil {
				b.Error(err)
				return
			}
		}
		for _, c := range confirmations {
			if !c.Wait() {
				b.Error("not acknowledged")
			}
		}
	}
}

func plainPublishing(m *message.Message) amqp.Publishing {
	headers := amqp.Table{}
	for _, header := range m.PublishedHeaders() {
		headers[header.Name] = header.Value
	}
	return amqp.Publishing{Headers: headers, DeliveryMode: amqp.Persistent, MessageId: m.ID, Timestamp: m.DueAt, Body: m.Body}
}

func makeBatches(b *testing.B, url, kind string, key func(i int) string) [][]message.Message {
	b.Helper()
	queue := testenv.Name(b, "bench")
	declare(b, url, queue, amqp.Table{"x-queue-type": kind})
	return sinktest.Batches(newMessage(b, "orders", queue), benchBatches, key)
}

// TestAllocations keeps a message cheap: it takes one or two, and seventy through the
// driver. Not parallel: it counts the whole process.
func TestAllocations(t *testing.T) { //nolint:paralleltest // see above
	url, topic := testenv.RabbitMQ(t), testenv.Name(t, "topic")
	declare(t, url, topic, nil)
	sink := newSink(t, Config{URL: url, Connections: 1})
	const most, count = 6, 500
	each := sinktest.Allocations(func() []message.Message {
		batch := make([]message.Message, count)
		for i := range batch {
			batch[i] = newMessage(t, "orders", topic)
		}
		return batch
	}, func(batch []message.Message) {
		for _, outcome := range publish(t, sink, batch...) {
			if outcome.Class != sinks.Acknowledged {
				t.Error(outcome.Err)
			}
		}
	})
	require.Less(t, each, float64(most))
	t.Logf("%.1f allocations a message", each)
}
