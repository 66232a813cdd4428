//go:build unix

package nats_test

import (
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/nats"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
)

const (
	benchBatches = 100 // of 500 messages
	benchCallers = 4
)

// BenchmarkPublish publishes 50,000 messages of 256 bytes in batches of 500, four
// at a time, with the same headers by the sink and by the client's asynchronous
// publish.
//
//	go test -run '^$' -bench Publish -benchtime 5x ./internal/sinks/nats
func BenchmarkPublish(b *testing.B) {
	broker := broker{url: testenv.NATS(b)}
	for name, key := range sinktest.Keys {
		b.Run(name, func(b *testing.B) {
			sink := newSink(b, nats.Config{URL: broker.url})
			nc, err := natsgo.Connect(broker.url)
			require.NoError(b, err)
			defer nc.Close()
			sinktest.Beside(b, benchCallers, func() [][]message.Message { return makeBatches(b, broker, key) },
				sinktest.Through(b, sink),
				sinktest.Side{Name: "client", Publish: plainPublish(b, nc)})
		})
	}
}

func plainPublish(b *testing.B, nc *natsgo.Conn) func([]message.Message) {
	b.Helper()
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4000))
	require.NoError(b, err)
	return func(batch []message.Message) {
		futures := make([]jetstream.PubAckFuture, len(batch))
		for i := range batch {
			m := &natsgo.Msg{Subject: batch[i].Topic, Data: batch[i].Body, Header: plainHeaders(&batch[i])}
			if futures[i], err = js.PublishMsgAsync(m); err != nil {
				b.Error(err)
				return
			}
		}
		for _, future := range futures {
			select {
			case <-future.Ok():
			case err := <-future.Err():
				b.Error(err)
			}
		}
	}
}

func plainHeaders(m *message.Message) natsgo.Header {
	headers := natsgo.Header{natsgo.MsgIdHdr: {m.ID + ":" + m.Token}}
	for _, header := range m.PublishedHeaders() {
		headers[header.Name] = []string{header.Value}
	}
	return headers
}

func makeBatches(b *testing.B, broker broker, key func(i int) string) [][]message.Message {
	b.Helper()
	topic := testenv.Name(b, "bench")
	broker.MakeTopic(b, topic, sinktest.TopicOptions{})
	return sinktest.Batches(newMessage(b, topic), benchBatches, key)
}

// TestAllocations keeps a message cheap: the client itself takes five for it, and
// thirty with its own asynchronous publish. Not parallel: it counts the whole process.
func TestAllocations(t *testing.T) { //nolint:paralleltest // see above
	broker := broker{url: testenv.NATS(t)}
	topic := testenv.Name(t, "topic")
	broker.MakeTopic(t, topic, sinktest.TopicOptions{})
	sink := newSink(t, nats.Config{URL: broker.url})
	const most, count = 10, 500
	each := sinktest.Allocations(func() []message.Message {
		batch := make([]message.Message, count)
		for i := range batch {
			batch[i] = newMessage(t, topic)
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
