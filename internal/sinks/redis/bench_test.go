//go:build unix

package redis_test

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/redis"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
)

const (
	benchBatches = 100 // of 500 messages
	benchCallers = 4
)

// BenchmarkPublish publishes 50,000 messages of 256 bytes in batches of 500, four at a
// time, with the same fields by the sink and by the client's own pipeline of a batch.
//
//	go test -run '^$' -bench Publish -benchtime 5x ./internal/sinks/redis
func BenchmarkPublish(b *testing.B) {
	broker := broker{options: at(testenv.StartRedis(b).Addr())}
	for name, key := range sinktest.Keys {
		b.Run(name, func(b *testing.B) {
			sink, client := broker.newSink(b, redis.Config{}), broker.client(b)
			sinktest.Beside(b, benchCallers, func() [][]message.Message { return makeBatches(b, broker, key) },
				sinktest.Through(b, sink),
				sinktest.Side{Name: "client", Publish: func(batch []message.Message) { plainPublish(b, client, batch) }})
		})
	}
}

func plainPublish(b *testing.B, client goredis.UniversalClient, batch []message.Message) {
	b.Helper()
	pipeline := client.Pipeline()
	for i := range batch {
		var fields []string
		for _, header := range batch[i].PublishedHeaders() {
			fields = append(fields, header.Name, header.Value)
		}
		if batch[i].Key != "" {
			fields = append(fields, redis.FieldKey, batch[i].Key)
		}
		pipeline.XAdd(b.Context(), &goredis.XAddArgs{
			Stream: batch[i].Topic, NoMkStream: true, Values: append(fields, redis.FieldBody, string(batch[i].Body)),
		})
	}
	if _, err := pipeline.Exec(b.Context()); err != nil {
		b.Error(err)
	}
}

func makeBatches(b *testing.B, broker broker, key func(i int) string) [][]message.Message {
	b.Helper()
	topic := testenv.Name(b, "bench")
	broker.MakeTopic(b, topic, sinktest.TopicOptions{})
	b.Cleanup(func() { broker.client(b).Del(b.Context(), topic) })
	return sinktest.Batches(sinktest.NewMessage(b, topic, ""), benchBatches, key)
}

// TestAllocations keeps a message cheap. Not parallel: it counts the whole process.
func TestAllocations(t *testing.T) { //nolint:paralleltest // see above
	broker := broker{options: at(testenv.StartRedis(t).Addr())}
	topic := testenv.Name(t, "topic")
	broker.MakeTopic(t, topic, sinktest.TopicOptions{})
	sink := broker.newSink(t, redis.Config{})
	const most, count = 15, 500
	each := sinktest.Allocations(func() []message.Message {
		batch := make([]message.Message, count)
		for i := range batch {
			batch[i] = sinktest.NewMessage(t, topic, "")
		}
		return batch
	}, func(batch []message.Message) {
		for _, outcome := range sinktest.Publish(t, sink, batch...) {
			if outcome.Class != sinks.Acknowledged {
				t.Error(outcome.Err)
			}
		}
	})
	require.Less(t, each, float64(most))
	t.Logf("%.1f allocations a message", each)
}
