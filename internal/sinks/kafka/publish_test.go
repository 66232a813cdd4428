package kafka

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// TestHungPartitionDelaysNobody holds the requests of one partition: what the
// same call has for other partitions and topics is reported meanwhile.
func TestHungPartitionDelaysNobody(t *testing.T) {
	t.Parallel()
	held := newGate()
	broker := newFake(t, func(ids []string) answer {
		if len(ids) == 1 {
			held.pass(t.Context())
			return answer{code: kafka.NotEnoughReplicasAfterAppend}
		}
		return answer{}
	})
	broker.partitions = 4
	sink := broker.sink(t)
	numbers := []int{0, 1, 2, 3}
	var batch []message.Message
	for _, key := range []string{"a", "b", "c", "d"} {
		if partitionOf(key, numbers) != partitionOf("a", numbers) {
			batch = append(batch, newMessages(t, "topic", key, 2)...)
		}
	}
	require.NotEmpty(t, batch)
	batch = append(batch, newMessages(t, "other", "a", 3)...)
	batch = append(batch, newMessage(t, "topic", "a"))
	hung := len(batch) - 1

	outcomes := sinks.NewOutcomes(len(batch))
	var publishing sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	publishing.Go(func() { sink.Publish(ctx, batch, outcomes) })
	<-held.entered
	var reported []int
	for len(reported) < hung {
		select {
		case <-outcomes.Changed():
			for _, report := range outcomes.Take() {
				reported = append(reported, report.Index)
			}
		case <-time.After(patience):
			t.Fatalf("only %d of %d are reported", len(reported), hung)
		}
	}
	require.NotContains(t, reported, hung)
	requireClass(t, outcomes.All()[:hung], sinks.Acknowledged, "")
	close(held.leave)
	publishing.Wait()
	requireClass(t, outcomes.All()[hung:], sinks.Unknown, sinks.ReasonBroker)
}

// TestQueuedBehindSilenceIsUnavailable has a broker that never answers: what it
// got is unknown, and what waited behind it was never sent. The call has no deadline.
func TestQueuedBehindSilenceIsUnavailable(t *testing.T) {
	t.Parallel()
	held := newGate()
	broker := newFake(t, func([]string) answer { held.pass(t.Context()); return answer{} })
	sink := newSink(t, Config{Brokers: []string{broker.listener.Addr().String()}, PublishTimeout: time.Second})
	var publishing sync.WaitGroup
	publishing.Go(func() {
		requireClass(t, sinks.Publish(t.Context(), sink, newMessages(t, "topic", "key", 3)), sinks.Unknown, sinks.ReasonTimeout)
	})
	<-held.entered
	publishing.Go(func() {
		requireClass(t, sinks.Publish(t.Context(), sink, newMessages(t, "topic", "key", 3)), sinks.Unavailable, sinks.ReasonTimeout)
	})
	publishing.Wait()
	require.Len(t, broker.seen(), 1)
	close(held.leave)
}

// TestQuotaIsKept has a broker that asks for a pause, and then for one that is
// too long to wait for.
func TestQuotaIsKept(t *testing.T) {
	t.Parallel()
	pause := 300 * time.Millisecond
	broker := newFake(t, func([]string) answer { return answer{throttle: pause} })
	sink := broker.sink(t)
	requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Acknowledged, "")
	began := time.Now()
	short := pause
	pause = time.Hour
	requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Acknowledged, "")
	require.GreaterOrEqual(t, time.Since(began), short*9/10)
	outcome := publish(t, sink, newMessage(t, "topic", "key"))[0]
	requireClass(t, []sinks.Outcome{outcome}, sinks.Unavailable, sinks.ReasonThrottled)
	require.Equal(t, sinks.Route("topic/0"), outcome.Route)
	require.Len(t, broker.seen(), 2)
}
