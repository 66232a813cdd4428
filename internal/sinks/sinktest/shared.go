package sinktest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// newTopic makes an ordinary topic under a new name.
func newTopic(t testing.TB, broker Broker) string {
	t.Helper()
	topic := newName("topic")
	broker.MakeTopic(t, topic, TopicOptions{})
	return topic
}

// acknowledgedIsStored publishes bodies, headers, ids and Keys of all kinds.
// Consumers get them as they were published, byte for byte, with the bridge's
// own headers.
func acknowledgedIsStored(t *testing.T, broker Broker) {
	topic, sink := newTopic(t, broker), openSink(t, broker, Options{})
	batch := newBatch(topic, "käse/😀", 6)
	batch[0].Body = nil
	batch[1].Body = allBytes()
	batch[2].Body = []byte{0}
	batch[3].Body = randomBody(100_000)
	batch[4].Headers = map[string]string{"X-Text": "grüße\tund ; \"mehr\": 1", "x-empty": "", "content-type": "text/plain; charset=utf-8"}
	batch[5].Headers, batch[5].Attempt = nil, 7
	batch[5].ID = strings.Repeat("ä", message.MaxIDLength/2)
	keyless := newMessage(topic, "")

	var l ledger
	requireAll(t, l.publish(t, sink, ample, append(batch, keyless)...), sinks.Acknowledged)
	l.verify(t, broker, topic)
}

// emptyBatch publishes nothing, and returns at once.
func emptyBatch(t *testing.T, broker Broker) {
	sink := openSink(t, broker, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), ample)
	defer cancel()
	require.Empty(t, sinks.Publish(ctx, sink, nil))
}

// orderOfAKey publishes batch after batch of several Keys at the same time.
// Each Key's messages are stored in order, each once.
func orderOfAKey(t *testing.T, broker Broker) {
	topic, sink := newTopic(t, broker), openSink(t, broker, Options{})
	var l ledger
	var writers sync.WaitGroup
	for range 6 {
		writers.Go(func() {
			key := newName("key")
			for range 4 {
				checkAcknowledged(t, l.publish(t, sink, ample, newBatch(topic, key, deep(broker)/4)...))
			}
		})
	}
	writers.Wait()
	l.verify(t, broker, topic)
}

// largeBatch publishes 1,000 messages of several Keys, and some without one, in
// one call. All are acknowledged and stored, each Key's in order.
func largeBatch(t *testing.T, broker Broker) {
	topic, sink := newTopic(t, broker), openSink(t, broker, Options{})
	keys := []string{newName("key"), newName("key"), newName("key"), ""}
	batch := newBatch(topic, "", 1000)
	for i := range batch {
		batch[i].Key = keys[i*7%len(keys)]
	}
	var l ledger
	requireAll(t, l.publish(t, sink, ample, batch...), sinks.Acknowledged)
	l.verify(t, broker, topic)
}

// manySmallCalls publishes single messages from 32 callers at once. All are
// stored, each caller's in order.
func manySmallCalls(t *testing.T, broker Broker) {
	topic, sink := newTopic(t, broker), openSink(t, broker, Options{})
	var l ledger
	var writers sync.WaitGroup
	for range 32 {
		writers.Go(func() {
			key := newName("key")
			for range 8 {
				checkAcknowledged(t, l.publish(t, sink, ample, newMessage(topic, key)))
			}
		})
	}
	writers.Wait()
	l.verify(t, broker, topic)
}

// byteLimit publishes, in one call, several times the bytes that the broker
// takes in one request. The sink splits them, and all are stored in order.
func byteLimit(t *testing.T, broker Broker) {
	topic, sink := newTopic(t, broker), openSink(t, broker, Options{})
	const size = 300_000
	total := max(4<<20, 3*broker.Features().BatchLimit)
	batch := newBatch(topic, newName("key"), total/size+1)
	for i := range batch {
		batch[i].Body = randomBody(size + i)
	}
	var l ledger
	requireAll(t, l.publish(t, sink, ample, batch...), sinks.Acknowledged)
	l.verify(t, broker, topic)
}

// refusal publishes batches of which one message, the first, a middle or the
// last, is spoilt, and wants that message refused and its mates, of the same
// key, stored in order.
func refusal(t *testing.T, broker Broker, options TopicOptions, class sinks.Class, reason sinks.Reason, spoil func(*message.Message)) {
	t.Helper()
	topic, sink := newName("topic"), openSink(t, broker, Options{})
	broker.MakeTopic(t, topic, options)
	const count = 9
	var l ledger
	for _, position := range []int{0, count / 2, count - 1} {
		batch := newBatch(topic, newName("key"), count)
		spoil(&batch[position])
		outcomes := l.publish(t, sink, ample, batch...)
		requireOutcome(t, outcomes[position], class, reason)
		outcomes[position] = sinks.Acked()
		requireAll(t, outcomes, sinks.Acknowledged)
	}
	l.verify(t, broker, topic)
}

// invalidTopic publishes a message whose topic the broker can never have, in a
// batch of its Key. It is refused for good; its mates are stored, in order.
func invalidTopic(t *testing.T, broker Broker) {
	refusal(t, broker, TopicOptions{}, sinks.Permanent, sinks.ReasonInvalid, func(m *message.Message) {
		m.Topic = broker.Features().InvalidTopic
	})
}

// tooLarge publishes a message that is larger than the broker takes, in a batch
// of its Key. It is refused for good; its mates are stored, in order.
func tooLarge(t *testing.T, broker Broker) {
	refusal(t, broker, TopicOptions{}, sinks.Permanent, sinks.ReasonTooLarge, func(m *message.Message) {
		m.Body = randomBody(broker.Features().TooLarge)
	})
}

// tooLargeForTopic publishes a message that is larger than its topic takes, in
// a batch of its Key. It is refused for good; its mates are stored, in order.
func tooLargeForTopic(t *testing.T, broker Broker) {
	const limit = 20_000
	refusal(t, broker, TopicOptions{MaxMessageBytes: limit}, sinks.Permanent, sinks.ReasonTooLarge, func(m *message.Message) {
		m.Body = randomBody(2 * limit)
	})
}

// missingTopicInBatch publishes a message whose topic does not exist, in a
// batch. Its route is unavailable, and no attempt is counted; its mates are
// stored, in order.
func missingTopicInBatch(t *testing.T, broker Broker) {
	refusal(t, broker, TopicOptions{}, sinks.Unavailable, broker.Features().Missing, func(m *message.Message) {
		m.Topic = newName("missing")
	})
}

// oversizedNames publishes an id and a header's name that are longer than the
// SDK accepts. The sink may refuse them or the broker may take them; their
// mates do not suffer.
func oversizedNames(t *testing.T, broker Broker) {
	topic, sink := newTopic(t, broker), openSink(t, broker, Options{})
	long := strings.Repeat("n", 300)
	batch := newBatch(topic, newName("key"), 7)
	batch[2].ID += long
	batch[4].Headers = map[string]string{long: "value"}
	var l ledger
	outcomes := l.publish(t, sink, ample, batch...)
	for i, outcome := range outcomes {
		if (i == 2 || i == 4) && outcome.Class == sinks.Permanent {
			requireOutcome(t, outcome, sinks.Permanent, sinks.ReasonInvalid)
			continue
		}
		requireAll(t, outcomes[i:i+1], sinks.Acknowledged)
	}
	l.verify(t, broker, topic)
}

// missingTopicAppears publishes to a topic that does not exist, and makes it.
// The sink publishes to it from then on, by itself.
func missingTopicAppears(t *testing.T, broker Broker) {
	topic, sink := newName("topic"), openSink(t, broker, Options{})
	var l ledger
	for _, outcome := range l.publish(t, sink, ample, newBatch(topic, "key", 20)...) {
		requireOutcome(t, outcome, sinks.Unavailable, broker.Features().Missing)
	}
	broker.MakeTopic(t, topic, TopicOptions{})
	l.awaitPublish(t, broker, sink, topic)
	l.verify(t, broker, topic)
}

// interleavedTopics publishes a batch for two topics and a missing one, in
// turn. Only those of the missing one are not stored.
func interleavedTopics(t *testing.T, broker Broker) {
	one, other, missing := newTopic(t, broker), newTopic(t, broker), newName("missing")
	sink := openSink(t, broker, Options{})
	batch := newBatch(one, newName("key"), 300)
	for i := range batch {
		batch[i].Topic = []string{one, other, missing}[i%3]
	}
	var l ledger
	for i, outcome := range l.publish(t, sink, ample, batch...) {
		if i%3 == 2 {
			requireOutcome(t, outcome, sinks.Unavailable, broker.Features().Missing)
		} else {
			requireOutcome(t, outcome, sinks.Acknowledged, "")
		}
	}
	l.verify(t, broker, one)
	l.verify(t, broker, other)
}

// fullTopic fills a topic. A broker may let a few more in than its limit says,
// but then refuses, and each message has a true answer of its own: the route takes
// nothing, no attempt is counted. Another topic in the same batch does not
// suffer.
func fullTopic(t *testing.T, broker Broker) {
	full, open, sink := newName("topic"), newTopic(t, broker), openSink(t, broker, Options{})
	broker.MakeTopic(t, full, TopicOptions{MaxMessages: 5})
	var l ledger
	requireAll(t, l.publish(t, sink, ample, newBatch(full, newName("key"), 5)...), sinks.Acknowledged)
	batch := newBatch(full, newName("key"), 100)
	for i := range batch {
		if i%2 == 1 {
			batch[i].Topic = open
		}
	}
	refused := 0
	for i, outcome := range l.publish(t, sink, ample, batch...) {
		if i%2 == 0 && outcome.Class != sinks.Acknowledged {
			if broker.Features().NacksFull { // What is behind it in its chain is certain.
				requireAll(t, []sinks.Outcome{outcome}, sinks.Unknown, sinks.Unavailable)
				require.True(t, outcome.OfRoute)
				require.Equal(t, sinks.ReasonRefused, outcome.Reason)
			} else {
				requireOutcome(t, outcome, sinks.Unavailable, sinks.ReasonFull)
			}
			refused++
			continue
		}
		requireOutcome(t, outcome, sinks.Acknowledged, "")
	}
	require.Positive(t, refused, "a full topic must refuse")
	l.verify(t, broker, full)
	l.verify(t, broker, open)
}

// endedContext publishes with a context that has ended. Nothing is stored, and
// the sink says so, at once.
func endedContext(t *testing.T, broker Broker) {
	topic, sink := newTopic(t, broker), openSink(t, broker, Options{})
	var l ledger
	requireAll(t, l.publish(t, sink, ample, newMessage(topic, "")), sinks.Acknowledged)
	cancelled, cancel := context.WithTimeout(t.Context(), ample)
	cancel()
	expired, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, ctx := range []context.Context{cancelled, expired} {
		began := time.Now()
		outcomes := l.publishCtx(t, ctx, sink, newBatch(topic, newName("key"), 50))
		require.Less(t, time.Since(began), margin)
		requireAll(t, outcomes, sinks.Unavailable)
	}
	l.verify(t, broker, topic)
}

// pingUp asks a healthy broker whether it can be reached, and it can.
func pingUp(t *testing.T, broker Broker) {
	sink := openSink(t, broker, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), ample)
	defer cancel()
	require.NoError(t, sink.Ping(ctx))
}
