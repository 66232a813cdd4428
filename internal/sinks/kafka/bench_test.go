package kafka

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/segmentio/kafka-go"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/testenv"
)

const (
	benchMessages = 200_000
	benchBatch    = 500
	benchCallers  = 8
)

// BenchmarkPublish publishes 200,000 messages of 256 B per iteration in batches
// of 500 from 8 callers to 6 partitions: through the sink, with a Key for each
// message, without Keys and with one Key for all, and beside it, with a Key for
// each, through kafka-go's own client and transport, which splits each batch over
// the partitions and waits for all.
func BenchmarkPublish(b *testing.B) {
	brokers := testenv.Kafka(b)
	sink := newSink(b, Config{Brokers: brokers})
	through := func(ctx context.Context, batch []message.Message) {
		for _, outcome := range sinks.Publish(ctx, sink, batch) {
			if outcome.Class != sinks.Acknowledged {
				b.Error(outcome.Err)
				return
			}
		}
	}
	each := func(i int) string { return fmt.Sprintf("order-%020d", i) }
	for _, c := range []struct {
		name    string
		key     func(i int) string
		publish func(context.Context, []message.Message)
	}{
		{"unique", each, through},
		{"none", func(int) string { return "" }, through},
		{"one", func(int) string { return "order" }, through},
		{"raw", each, rawClient(b, brokers)},
	} {
		b.Run(c.name, func(b *testing.B) {
			topic := testenv.Name(b, "bench")
			(&testBroker{config: Config{Brokers: brokers}}).makeTopic(b, topic, partitions)
			batches := benchBatches(b, topic, c.key)
			c.publish(b.Context(), batches[0])
			for b.Loop() {
				publishAll(b.Context(), batches, c.publish)
			}
			b.ReportMetric(float64(benchMessages)*float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
		})
	}
}

func benchBatches(b *testing.B, topic string, key func(i int) string) [][]message.Message {
	b.Helper()
	batches := make([][]message.Message, benchMessages/benchBatch)
	for i := range batches {
		batches[i] = newMessages(b, topic, "", benchBatch)
		for j := range batches[i] {
			batches[i][j].Key = key(i*benchBatch + j)
			batches[i][j].Body = make([]byte, 256)
		}
	}
	return batches
}

func rawClient(b *testing.B, brokers []string) func(context.Context, []message.Message) {
	b.Helper()
	transport := &kafka.Transport{}
	b.Cleanup(transport.CloseIdleConnections)
	client := &kafka.Client{Addr: kafka.TCP(brokers...), Transport: transport, Timeout: patience}
	return func(ctx context.Context, batch []message.Message) { produceRaw(ctx, b, client, batch[0].Topic, batch) }
}

func publishAll(ctx context.Context, batches [][]message.Message, publish func(context.Context, []message.Message)) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	work := make(chan []message.Message)
	var callers sync.WaitGroup
	for range benchCallers {
		callers.Go(func() {
			for batch := range work {
				publish(ctx, batch)
			}
		})
	}
	for _, batch := range batches {
		work <- batch
	}
	close(work)
	callers.Wait()
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
		partition := partitionOf(m.Key, numbers)
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
