package kafka

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
)

// Read implements [sinktest.Broker].
func (b *testBroker) Read(t testing.TB, topic string, atLeast int) []sinktest.StoredMessage {
	t.Helper()
	var stored []sinktest.StoredMessage
	for _, records := range b.readAll(t, topic, atLeast) {
		for _, record := range records {
			stored = append(stored, record.StoredMessage)
		}
	}
	return stored
}

// storedRecord is a record with what only Kafka knows of it.
type storedRecord struct {
	sinktest.StoredMessage
	keyed, valued bool // the key, the value is not null
	at            time.Time
}

// readAll returns the records of each partition.
func (b *testBroker) readAll(t testing.TB, topic string, atLeast int) (byPartition [][]storedRecord) {
	t.Helper()
	b.administer(t, func(ctx context.Context, client *kafka.Client) {
		answer, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
		require.NoError(t, err)
		require.NoError(t, answer.Topics[0].Error)
		byPartition = make([][]storedRecord, len(answer.Topics[0].Partitions))
		deadline := time.Now().Add(patience)
		for {
			count := 0
			for partition := range byPartition {
				byPartition[partition] = readRest(ctx, t, client, topic, partition, byPartition[partition])
				count += len(byPartition[partition])
			}
			if count >= atLeast || time.Now().After(deadline) {
				return
			}
		}
	})
	return byPartition
}

// readRest reads a partition from where read ends up to its end.
func readRest(ctx context.Context, t testing.TB, client *kafka.Client, topic string, partition int, read []storedRecord) []storedRecord {
	t.Helper()
	for {
		response, err := client.Fetch(ctx, &kafka.FetchRequest{
			Topic: topic, Partition: partition, Offset: int64(len(read)), MinBytes: 1, MaxBytes: 8 << 20, MaxWait: 20 * time.Millisecond,
		})
		require.NoError(t, err)
		if errors.Is(response.Error, kafka.NotLeaderForPartition) {
			continue // The broker has just started; ctx bounds this.
		}
		require.NoError(t, response.Error)
		before := len(read)
		for {
			record, err := response.Records.ReadRecord()
			if err != nil {
				break
			}
			if record.Offset >= int64(before) {
				read = append(read, newStored(t, record))
			}
		}
		if int64(len(read)) >= response.HighWatermark {
			return read
		}
	}
}

func newStored(t testing.TB, record *kafka.Record) storedRecord {
	t.Helper()
	stored := storedRecord{keyed: record.Key != nil, valued: record.Value != nil, at: record.Time}
	key, err := kafka.ReadAll(record.Key)
	require.NoError(t, err)
	stored.Body, err = kafka.ReadAll(record.Value)
	require.NoError(t, err)
	stored.Key, stored.Headers = string(key), map[string]string{}
	for _, header := range record.Headers {
		stored.Headers[header.Key] = string(header.Value)
	}
	return stored
}
