package nats_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/nats"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
)

// ofKey makes messages of one Key.
func ofKey(t testing.TB, topic, key string, count int) []message.Message {
	t.Helper()
	batch := make([]message.Message, count)
	for i := range batch {
		batch[i] = newMessage(t, topic)
		batch[i].Key = key
	}
	return batch
}

// What is behind a message without an answer is not handed over, and blames
// what that one blames; a refusal of one message lets the next go.
func TestAChainStopsAtWhatHasNoAnswer(t *testing.T) {
	t.Parallel()
	b := broker{url: testenv.NATS(t)}
	topic, hanging, missing := testenv.Name(t, "topic"), testenv.Name(t, "hanging"), testenv.Name(t, "missing")
	b.MakeTopic(t, topic, sinktest.TopicOptions{MaxMessageBytes: 1000})
	b.HangTopic(t, hanging)
	sink := newSink(t, nats.Config{URL: b.url, PublishTimeout: time.Second})

	batch := ofKey(t, topic, "a", 4)
	batch[1].Body = make([]byte, 2000)
	batch = append(batch, ofKey(t, hanging, "a", 3)...)
	batch = append(batch, ofKey(t, missing, "a", 3)...)
	outcomes := publish(t, sink, batch...)
	requireOutcome(t, outcomes[0], sinks.Acknowledged, "")
	requireOutcome(t, outcomes[1], sinks.Permanent, sinks.ReasonTooLarge)
	requireOutcome(t, outcomes[2], sinks.Acknowledged, "")
	requireOutcome(t, outcomes[3], sinks.Acknowledged, "")
	requireOutcome(t, outcomes[4], sinks.Unknown, sinks.ReasonTimeout)
	requireOutcome(t, outcomes[5], sinks.Unavailable, sinks.ReasonTimeout)
	requireOutcome(t, outcomes[6], sinks.Unavailable, sinks.ReasonTimeout)
	for _, outcome := range outcomes[7:] {
		requireOutcome(t, outcome, sinks.Unavailable, sinks.ReasonTopicMissing)
		require.ErrorContains(t, outcome.Err, missing)
	}
	for _, outcome := range outcomes {
		require.False(t, outcome.Whole)
	}
}

// While JetStream is asked why nobody listens to a subject, and does not answer,
// the other subjects' outcomes come.
func TestAQuestionHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	// The question goes to somebody who hears it and says nothing.
	server := testenv.StartNATS(t, `mappings: {"$JS.API.STREAM.NAMES": "unanswered"}`)
	b := broker{url: server.URL()}
	topic := testenv.Name(t, "topic")
	b.MakeTopic(t, topic, sinktest.TopicOptions{})
	conn, _ := b.open(t)
	t.Cleanup(conn.Close)
	asked, err := conn.SubscribeSync("unanswered")
	require.NoError(t, err)
	require.NoError(t, conn.Flush())
	sink := newSink(t, nats.Config{URL: server.URL()})
	require.NoError(t, sink.Ping(t.Context()))

	var batch []message.Message
	for range 50 {
		batch = append(batch, newMessage(t, testenv.Name(t, "missing")), newMessage(t, topic))
	}
	batch = append(batch, ofKey(t, topic, "key", 50)...)
	outcomes := sinks.NewOutcomes(len(batch))
	began := time.Now()
	sink.Publish(t.Context(), batch, outcomes)
	require.Less(t, time.Since(began), 8*time.Second, "not one question after the other")
	var healthy, missing time.Duration
	require.Zero(t, outcomes.Left())
	for _, report := range outcomes.Take() {
		if batch[report.Index].Topic == topic {
			requireOutcome(t, report.Outcome, sinks.Acknowledged, "")
			healthy = max(healthy, report.At.Sub(began))
			continue
		}
		require.Equal(t, sinks.Unavailable, report.Class)
		require.False(t, report.Whole)
		if missing == 0 {
			missing = report.At.Sub(began)
		}
	}
	require.Less(t, healthy, missing, "the first question is given up after 2 s")
	_, err = asked.NextMsg(time.Minute)
	require.NoError(t, err, "a question was asked")
}

// A server that answers nothing, not even pings, is no matter of one subject.
func TestASilentServerIsWhole(t *testing.T) {
	t.Parallel()
	b := broker{url: testenv.NATS(t)}
	topic := testenv.Name(t, "topic")
	b.MakeTopic(t, topic, sinktest.TopicOptions{})
	proxy := testenv.NewProxy(t, strings.TrimPrefix(b.url, "nats://"))
	sink := newSink(t, nats.Config{URL: "nats://" + proxy.Addr(), PublishTimeout: time.Second})
	requireOutcome(t, publish(t, sink, newMessage(t, topic))[0], sinks.Acknowledged, "")

	proxy.Blackhole(true)
	var outcomes []sinks.Outcome
	for range 5 { // A write that a busy machine holds up looks like one that the server lets wait.
		if outcomes = publish(t, sink, ofKey(t, topic, "key", 3)...); outcomes[0].Whole {
			break
		}
	}
	requireOutcome(t, outcomes[0], sinks.Unknown, sinks.ReasonTimeout)
	requireOutcome(t, outcomes[1], sinks.Unavailable, sinks.ReasonTimeout)
	for _, outcome := range outcomes {
		require.True(t, outcome.Whole, outcome.Err)
	}
	proxy.Blackhole(false)
	require.Eventually(t, func() bool {
		return publish(t, sink, newMessage(t, topic))[0].Class == sinks.Acknowledged
	}, 30*time.Second, 50*time.Millisecond)
}

// A large message on a slow link takes longer than the publish timeout, and
// what waits behind it, too.
func TestALargeMessageOnASlowLink(t *testing.T) {
	t.Parallel()
	b := broker{url: testenv.NATS(t)}
	topic := testenv.Name(t, "topic")
	b.MakeTopic(t, topic, sinktest.TopicOptions{})
	sink := b.NewSink(t, sinktest.Options{PublishTimeout: 5 * time.Second, BytesPerSecond: 75_000})
	require.NoError(t, sink.Ping(t.Context()))
	large := newMessage(t, topic)
	large.Body = make([]byte, 900_000)
	began := time.Now()
	outcomes := publish(t, sink, newMessage(t, topic), large, newMessage(t, topic))
	for _, outcome := range outcomes {
		requireOutcome(t, outcome, sinks.Acknowledged, "")
		require.False(t, outcome.Duplicate)
	}
	require.Greater(t, time.Since(began), 10*time.Second, "the link is not slow")
}

// On a link that is so slow that what is on its way takes longer than the
// publish timeout, answers to earlier messages show that later ones come.
func TestAnswersShowProgress(t *testing.T) {
	t.Parallel()
	b := broker{url: testenv.NATS(t)}
	topic := testenv.Name(t, "topic")
	b.MakeTopic(t, topic, sinktest.TopicOptions{})
	sink := b.NewSink(t, sinktest.Options{PublishTimeout: 5 * time.Second, BytesPerSecond: 25_000})
	require.NoError(t, sink.Ping(t.Context()))
	batch := make([]message.Message, 150)
	for i := range batch {
		batch[i] = newMessage(t, topic)
		batch[i].Body = make([]byte, 1_000)
	}
	for _, outcome := range publish(t, sink, batch...) {
		requireOutcome(t, outcome, sinks.Acknowledged, "")
		require.False(t, outcome.Duplicate)
	}
}
