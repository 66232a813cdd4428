package sinktest

import (
	"cmp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// The cases of this file: a broker fails by parts, and is slow.

// routes asks for the names of routes, for which the broker need not even run.
// Messages of one Key and Topic have one route, those of different topics have
// different ones.
func routes(t *testing.T, broker Broker) {
	sink := openSink(t, broker, Options{})
	one, other := newMessage(newName("topic"), newName("key")), newMessage(newName("topic"), newName("key"))
	require.NotEmpty(t, sink.Route(&one))
	require.NotEqual(t, sink.Route(&one), sink.Route(&other), "of different topics")
	for range 20 {
		mate := newMessage(one.Topic, one.Key)
		require.Equal(t, sink.Route(&one), sink.Route(&mate), "of one Key and Topic")
		keyless := newMessage(one.Topic, "")
		require.NotEmpty(t, sink.Route(&keyless))
		require.NotEqual(t, sink.Route(&other), sink.Route(&keyless))
	}
}

// deep is how many messages of one Key a case publishes in one batch.
func deep(broker Broker) int { return cmp.Or(broker.Features().Deep, 1000) }

// topicAppearsInBatch makes a topic while a deep batch for it is published again
// and again, as a poller would. Whatever was refused before it appeared must not
// be overtaken by what was taken after.
func topicAppearsInBatch(t *testing.T, broker Broker) {
	sink := openSink(t, broker, Options{})
	for range 4 {
		topic := newName("topic")
		whilePublishing(t, sink, newBatch(topic, newName("key"), deep(broker)), func() { broker.MakeTopic(t, topic, TopicOptions{}) })
		requireNumbered(t, broker, topic, deep(broker))
	}
}

// topicReplacedInBatch deletes the topic in the middle of a deep batch, and
// makes it again: what it stores then is in order, too. What the broker held when
// it was deleted may never be answered, which takes the publish timeout.
func topicReplacedInBatch(t *testing.T, broker Broker) {
	deleter, ok := broker.(TopicDeleter)
	require.True(t, ok, "the broker must implement TopicDeleter, or name the gap")
	sink := openSink(t, broker, Options{PublishTimeout: short})
	for range 4 {
		topic := newTopic(t, broker)
		whilePublishing(t, sink, newBatch(topic, newName("key"), deep(broker)), func() {
			deleter.DeleteTopic(t, topic)
			broker.MakeTopic(t, topic, TopicOptions{})
		})
		requireNumbered(t, broker, topic, 0)
	}
}

// whilePublishing does something while a deep batch of one Key, whose bodies are
// its numbers, is published until all of it is acknowledged.
func whilePublishing(t testing.TB, sink sinks.Sink, batch []message.Message, something func()) {
	t.Helper()
	for i := range batch {
		batch[i].Body = []byte(strconv.Itoa(i))
	}
	begun := make(chan struct{})
	var publishing sync.WaitGroup
	publishing.Go(func() {
		close(begun)
		untilAcknowledged(t, sink, batch)
	})
	defer publishing.Wait()
	<-begun
	something()
}

// untilAcknowledged publishes the batch, and then what was not acknowledged, in
// order, until nothing is left.
func untilAcknowledged(t testing.TB, sink sinks.Sink, batch []message.Message) {
	t.Helper()
	for began := time.Now(); len(batch) > 0; {
		if time.Since(began) > 2*ample {
			t.Errorf("%d messages are not acknowledged", len(batch))
			return
		}
		var left []message.Message
		for i, outcome := range sinks.Publish(t.Context(), sink, batch) {
			if outcome.Class != sinks.Acknowledged {
				left = append(left, batch[i])
			}
		}
		batch = left
	}
}

// requireNumbered reads the topic: the first copies must be in the order of
// their numbers, and at least so many.
func requireNumbered(t testing.TB, broker Broker, topic string, atLeast int) {
	t.Helper()
	seen, last := map[int]bool{}, -1
	for _, stored := range broker.Read(t, topic, atLeast) {
		number, err := strconv.Atoi(string(stored.Body))
		require.NoError(t, err)
		if seen[number] {
			continue
		}
		require.Greater(t, number, last, "stored first after a later one of its Key")
		seen[number], last = true, number
	}
	require.GreaterOrEqual(t, len(seen), atLeast)
}

// hangingTopic publishes to a topic that never answers, and to a healthy one,
// in one batch. The healthy ones' outcomes must come when they are known, the
// others' when the sink's publish timeout is over, and they blame their route
// only.
func hangingTopic(t *testing.T, broker Broker) {
	hanger, ok := broker.(TopicHanger)
	require.True(t, ok, "the broker must implement TopicHanger, or name the gap")
	healthy, hanging := newTopic(t, broker), newName("topic")
	hanger.HangTopic(t, hanging)
	sink := openSink(t, broker, Options{PublishTimeout: patient})
	var l ledger
	l.awaitPublish(t, broker, sink, healthy)

	batch := append(newBatch(hanging, newName("key"), 3), newMessage(hanging, ""))
	healthyOnes := deep(broker) / 20
	batch = append(batch, newBatch(healthy, newName("key"), healthyOnes)...)
	batch = append(batch, newMessage(hanging, newName("key")), newMessage(healthy, ""))
	outcomes := sinks.NewOutcomes(len(batch))
	began := time.Now()
	sink.Publish(t.Context(), batch, outcomes)
	require.Less(t, time.Since(began), 2*patient+margin)
	require.Zero(t, outcomes.Left())
	for _, report := range outcomes.Take() {
		if batch[report.Index].Topic == healthy {
			requireOutcome(t, report.Outcome, sinks.Acknowledged, "")
			require.Less(t, report.At.Sub(began), patient*3/4, "the outcome of a healthy topic waited")
			continue
		}
		requireAll(t, []sinks.Outcome{report.Outcome}, sinks.Unknown, sinks.Unavailable)
		require.Equal(t, sinks.ReasonTimeout, report.Reason, report.Err)
		require.False(t, report.Whole, "only the topic hangs")
		require.GreaterOrEqual(t, report.At.Sub(began), patient*3/4, "before its time was over")
	}
	require.Len(t, broker.Read(t, healthy, healthyOnes+2), healthyOnes+2)
}

// slowLink publishes over a link that needs much longer for it than the publish
// timeout. Since it makes progress all the time, nothing is given up, and so
// nothing is published twice.
func slowLink(t *testing.T, broker Broker) {
	const bytesPerSecond, calls, count, size = 100_000, 3, 400, 1_000
	topic := newTopic(t, broker)
	sink := openSink(t, broker, Options{PublishTimeout: patient, BytesPerSecond: bytesPerSecond})
	var l ledger
	l.awaitPublish(t, broker, sink, topic)
	began := time.Now()
	var publishing sync.WaitGroup
	for range calls {
		publishing.Go(func() {
			batch := newBatch(topic, "", count)
			for i := range batch {
				batch[i].Key, batch[i].Body = newName("key"), randomBody(size)
			}
			checkAcknowledged(t, l.publish(t, sink, 2*ample, batch...))
		})
	}
	publishing.Wait()
	assert.Greater(t, time.Since(began), 2*patient, "the link is not slow")
	l.verify(t, broker, topic)
}
