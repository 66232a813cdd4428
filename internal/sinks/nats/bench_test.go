package nats_test

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/nats"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
	"github.com/delaybridge/delaybridge/internal/testenv"
)

// One operation is one message of 256 bytes. All publish batches of 500, four at
// a time, with the same headers.
//
//	go test -run '^$' -bench Publish -benchtime 100000x ./internal/sinks/nats
const (
	benchBatch   = 500
	benchWriters = 4
)

func BenchmarkPublish(b *testing.B) {
	broker := broker{url: testenv.NATS(b)}
	for name, key := range map[string]func(batch, i int) string{
		"no_key":      func(int, int) string { return "" },
		"unique_keys": func(_, i int) string { return "key-" + strconv.Itoa(i) },
		"100_keys":    func(batch, i int) string { return fmt.Sprintf("key-%d-%d", batch, i%100) },
		"one_key":     func(batch, _ int) string { return "key-" + strconv.Itoa(batch) },
	} {
		b.Run("sink/"+name, func(b *testing.B) {
			topic := benchTopic(b, broker)
			sink := newSink(b, nats.Config{Servers: []string{broker.url}})
			require.NoError(b, sink.Ping(b.Context()))
			benchBatches(b, topic, key, func(batch []message.Message) {
				for _, outcome := range publish(b, sink, batch...) {
					if outcome.Class != sinks.Acknowledged {
						b.Error(outcome.Err)
					}
				}
			})
		})
	}
	b.Run("plain", func(b *testing.B) {
		topic := benchTopic(b, broker)
		nc, err := natsgo.Connect(broker.url)
		require.NoError(b, err)
		defer nc.Close()
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(4000))
		require.NoError(b, err)
		noKey := func(int, int) string { return "" }
		benchBatches(b, topic, noKey, func(batch []message.Message) {
			futures := make([]jetstream.PubAckFuture, len(batch))
			for i := range batch {
				future, err := js.PublishMsgAsync(&natsgo.Msg{Subject: batch[i].Topic, Data: batch[i].Body, Header: plainHeaders(&batch[i])})
				if err != nil {
					b.Error(err)
					return
				}
				futures[i] = future
			}
			for _, future := range futures {
				select {
				case <-future.Ok():
				case err := <-future.Err():
					b.Error(err)
				}
			}
		})
	})
}

func plainHeaders(m *message.Message) natsgo.Header {
	headers := natsgo.Header{natsgo.MsgIdHdr: {m.ID + ":" + m.Token}}
	for _, header := range m.PublishedHeaders() {
		headers[header.Name] = []string{header.Value}
	}
	return headers
}

func benchTopic(b *testing.B, broker broker) string {
	b.Helper()
	topic := testenv.Name(b, "bench")
	broker.MakeTopic(b, topic, sinktest.TopicOptions{})
	return topic
}

// benchBatches publishes b.N messages.
func benchBatches(b *testing.B, topic string, key func(batch, i int) string, publish func([]message.Message)) {
	b.Helper()
	batches := make(chan []message.Message, b.N/benchBatch+1)
	template := newMessage(b, topic)
	template.Body = []byte(strings.Repeat("x", 256))
	template.Headers = map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	for from := 0; from < b.N; from += benchBatch {
		batch := make([]message.Message, min(benchBatch, b.N-from))
		for i := range batch {
			batch[i] = template
			batch[i].Key = key(from/benchBatch, i)
			batch[i].ID = fmt.Sprintf("order-%020d", from+i)
		}
		batches <- batch
	}
	close(batches)
	b.ResetTimer()
	b.ReportAllocs()
	var writers sync.WaitGroup
	for range benchWriters {
		writers.Go(func() {
			for batch := range batches {
				publish(batch)
			}
		})
	}
	writers.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
}
