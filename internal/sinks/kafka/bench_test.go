//go:build unix

package kafka

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
)

const (
	benchBatches = 100 // of 500 messages
	benchCallers = 8
)

// BenchmarkPublish publishes 50,000 messages of 256 bytes in batches of 500,
// eight at a time, to 6 partitions, with the same Keys and headers by the sink
// and by kafka-go's own client, which makes one request for each partition of a
// batch.
//
//	go test -run '^$' -bench Publish -benchtime 5x ./internal/sinks/kafka
func BenchmarkPublish(b *testing.B) {
	brokers := testenv.Kafka(b)
	for name, key := range sinktest.Keys {
		b.Run(name, func(b *testing.B) {
			sink := newSink(b, Config{Brokers: brokers})
			batches := makeBatches(b, brokers, key)
			sinktest.Beside(b, benchCallers, func() [][]message.Message { return batches },
				sinktest.Through(b, sink),
				sinktest.Side{Name: "client", Publish: plainPublish(b, brokers)})
		})
	}
}

func makeBatches(b *testing.B, brokers []string, key func(i int) string) [][]message.Message {
	b.Helper()
	topic := testenv.Name(b, "bench")
	(&testBroker{config: Config{Brokers: brokers}}).makeTopic(b, topic, partitions)
	return sinktest.Batches(newMessage(b, topic, ""), benchBatches, key)
}

func plainPublish(b *testing.B, brokers []string) func([]message.Message) {
	b.Helper()
	transport := &kafka.Transport{}
	b.Cleanup(transport.CloseIdleConnections)
	client := &kafka.Client{Addr: kafka.TCP(brokers...), Transport: transport, Timeout: patience}
	return func(batch []message.Message) { produceRaw(b.Context(), b, client, batch[0].Topic, batch) }
}

func produceRaw(ctx context.Context, b *testing.B, client *kafka.Client, topic string, batch []message.Message) {
	b.Helper()
	byPartition := make([][]kafka.Record, partitions)
	numbers := []int{0, 1, 2, 3, 4, 5}
	for i := range batch {
		m := &batch[i]
		record := kafka.Record{Key: kafka.NewBytes([]byte(m.Key)), Value: kafka.NewBytes(m.Body)}
		for _, header := range m.PublishedHeaders() {
			record.Headers = append(record.Headers, kafka.Header{Key: header.Name, Value: []byte(header.Value)})
		}
		partition := i % partitions
		if m.Key != "" {
			partition = partitionOf(m.Key, numbers)
		}
		byPartition[partition] = append(byPartition[partition], record)
	}
	var requests sync.WaitGroup
	for partition, records := range byPartition {
		requests.Go(func() {
			response, err := client.Produce(ctx, &kafka.ProduceRequest{
				Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(records...),
			})
			if err == nil {
				err = response.Error
			}
			if err != nil {
				b.Error(err)
			}
		})
	}
	requests.Wait()
}

// TestAllocations keeps a message cheap. Not parallel: it counts the whole process.
func TestAllocations(t *testing.T) { //nolint:paralleltest // see above
	brokers, topic := testenv.Kafka(t), testenv.Name(t, "topic")
	(&testBroker{config: Config{Brokers: brokers}}).makeTopic(t, topic, partitions)
	sink := newSink(t, Config{Brokers: brokers})
	const most, count = 8, 500
	each := sinktest.Allocations(func() []message.Message {
		batch := newMessages(t, topic, "", count)
		for i := range batch {
			batch[i].Key = strconv.Itoa(i)
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
