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
// of 500 from 8 callers to 6 partitions: through the sink, and beside it through
// kafka-go's own client and transport, which splits each batch over the
// partitions and waits for all.
func BenchmarkPublish(b *testing.B) {
	brokers := testenv.Kafka(b)
	batches := benchBatches(b)
	harness := &testBroker{config: Config{Brokers: brokers}}
	for name, prepare := range map[string]func(topic string) func(ctx context.Context, batch []message.Message){
		"sink": func(string) func(context.Context, []message.Message) {
			sink := newSink(b, Config{Brokers: brokers})
			return func(ctx context.Context, batch []message.Message) {
				for _, outcome := range sinks.Publish(ctx, sink, batch) {
					if outcome.Class != sinks.Acknowledged {
						b.Error(outcome.Err)
						return
					}
				}
			}
		},
		"raw": func(topic string) func(context.Context, []message.Message) {
			transport := &kafka.Transport{}
			b.Cleanup(transport.CloseIdleConnections)
			client := &kafka.Client{Addr: kafka.TCP(brokers...), Transport: transport, Timeout: patience}
			return func(ctx context.Context, batch []message.Message) { produceRaw(ctx, b, client, topic, batch) }
		},
	} {
		b.Run(name, func(b *testing.B) {
			topic := testenv.Name(b, "bench")
			harness.makeTopic(b, topic, partitions)
			for _, batch := range batches {
				for i := range batch {
					batch[i].Topic = topic
				}
			}
			publish := prepare(topic)
			publish(b.Context(), batches[0])
			for b.Loop() {
				publishAll(b.Context(), batches, publish)
			}
			b.ReportMetric(float64(benchMessages)*float64(b.N)/b.Elapsed().Seconds(), "msgs/s")
		})
	}
}

func benchBatches(b *testing.B) [][]message.Message {
	b.Helper()
	batches := make([][]message.Message, benchMessages/benchBatch)
	for i := range batches {
		batches[i] = newMessages(b, "", "", benchBatch)
		for j := range batches[i] {
			batches[i][j].Key = fmt.Sprintf("order-%020d", i*benchBatch+j)
			batches[i][j].Body = make([]byte, 256)
		}
	}
	return batches
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
