package kafka

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// TestRouteIsThePartitionOnceKnown also loses the topic: its messages that wait
// keep their route.
func TestRouteIsThePartitionOnceKnown(t *testing.T) {
	t.Parallel()
	broker := newFake(t, always(answer{}))
	broker.partitions = 7
	sink := broker.sink(t)
	keyed, keyless := newMessage(t, "topic", "order-42"), newMessage(t, "topic", "")
	route := func(m message.Message) string { return string(sink.Route(&m)) }
	require.Equal(t, "topic", route(keyed))
	require.Equal(t, "topic/*", route(keyless), "else what fails of it would be the route of those with a Key, too")
	require.Zero(t, broker.timesAsked(), "a route is told without asking")

	requireClass(t, publish(t, sink, keyed), sinks.Acknowledged, "")
	require.Equal(t, broker.last().route(), sinks.Route(route(keyed)))
	require.Equal(t, "topic/"+strconv.Itoa(broker.last().number), route(keyed))
	require.Equal(t, "topic/*", route(keyless))
	require.Equal(t, "other", route(newMessage(t, "other", "order-42")))

	known := route(keyed)
	broker.lose("topic")
	sink.topics.doubt("topic")
	outcome := publish(t, sink, keyed)[0]
	requireClass(t, []sinks.Outcome{outcome}, sinks.Unavailable, sinks.ReasonTopicMissing)
	require.Empty(t, outcome.Route, "it is the route that the sink names")
	require.Equal(t, known, route(keyed))
}

// TestFailureNamesThePartition fails a partition, for messages whose route was
// the topic before.
func TestFailureNamesThePartition(t *testing.T) {
	t.Parallel()
	for code, class := range map[kafka.Error]sinks.Class{
		kafka.NotEnoughReplicas: sinks.Unavailable, kafka.RequestTimedOut: sinks.Unknown,
	} {
		broker := newFake(t, always(answer{code: code}))
		broker.partitions = 3
		for _, key := range []string{"", "key"} {
			outcome := publish(t, broker.sink(t), newMessage(t, "topic", key))[0]
			require.Equal(t, class, outcome.Class, outcome.Err)
			require.Equal(t, broker.last().route(), outcome.Route)
			require.False(t, outcome.Whole)
		}
	}
}

func TestForbiddenTopicIsTheRoute(t *testing.T) {
	t.Parallel()
	broker := newFake(t, always(answer{code: kafka.TopicAuthorizationFailed}))
	outcome := publish(t, broker.sink(t), newMessage(t, "topic", ""))[0]
	requireClass(t, []sinks.Outcome{outcome}, sinks.Unavailable, sinks.ReasonAuth)
	require.Empty(t, outcome.Route)
	require.False(t, outcome.Whole)
}

// TestGoneBrokerIsItsPartitionsMatter has a leader that cannot be reached, while
// another broker answers for the cluster, and then one that cannot either.
func TestGoneBrokerIsItsPartitionsMatter(t *testing.T) {
	t.Parallel()
	gone, broker := newFake(t, always(answer{})), newFake(t, always(answer{}))
	gone.stop()
	broker.lead(gone.listener.Addr().String())
	sink := broker.sink(t)
	outcomes := publish(t, sink, newMessages(t, "topic", "key", 3)...)
	requireClass(t, outcomes, sinks.Unavailable, sinks.ReasonConnection)
	for _, outcome := range outcomes {
		require.False(t, outcome.Whole)
		require.Equal(t, sinks.Route("topic/0"), outcome.Route)
	}
	broker.stop()
	require.Eventually(t, func() bool { // What the other broker has just said may be believed for a moment.
		outcomes = publish(t, sink, append(newMessages(t, "topic", "key", 3), newMessage(t, "other", ""))...)
		requireClass(t, outcomes, sinks.Unavailable, sinks.ReasonConnection)
		return !slices.ContainsFunc(outcomes, func(o sinks.Outcome) bool { return !o.Whole || o.Route != "" })
	}, time.Minute, time.Millisecond)
}

// TestKeylessAvoidFailedPartition fails one partition of three once.
func TestKeylessAvoidFailedPartition(t *testing.T) {
	t.Parallel()
	var broker *fake
	bad := -1
	broker = newFake(t, func([]string) answer {
		if place := broker.last().number; bad == -1 || place == bad {
			bad = place
			return answer{code: kafka.NotEnoughReplicas}
		}
		return answer{}
	})
	broker.partitions = 3
	sink := broker.sink(t)
	requireClass(t, publish(t, sink, newMessage(t, "topic", "")), sinks.Unavailable, sinks.ReasonBroker)
	seen := map[int]bool{}
	for range 100 {
		requireClass(t, publish(t, sink, newMessages(t, "topic", "", 2)...), sinks.Acknowledged, "")
		seen[broker.last().number] = true
	}
	require.Len(t, seen, 2)
}

func TestKeylessChoice(t *testing.T) {
	t.Parallel()
	sink := newSink(t, Config{Brokers: []string{"127.0.0.1:1"}})
	chosen := func(leaders ...string) []int {
		count := make([]int, len(leaders))
		for range 200 {
			count[sink.choose("topic", leaders)]++
		}
		var list []int
		for number, times := range count {
			if times > 0 {
				list = append(list, number)
			}
		}
		return list
	}
	require.Equal(t, []int{0}, chosen("a"))
	require.Equal(t, []int{0, 1}, chosen("", ""), "none is led")
	require.Equal(t, []int{1, 3, 4}, chosen("", "a", "", "b", "a", ""))

	sink.failures.note(partition{"topic", 1}, true)
	sink.failures.note(partition{"other", 2}, true)
	require.Equal(t, []int{0, 2}, chosen("a", "a", "a"))
	require.Equal(t, []int{1}, chosen("", "a", ""), "a failed one is better than none that is led")
	sink.failures.note(partition{"topic", 1}, false)
	require.Equal(t, []int{0, 1, 2}, chosen("a", "a", "a"))
	sink.failures.at[partition{"topic", 1}] = time.Now().Add(-avoidFor)
	require.Equal(t, []int{0, 1, 2}, chosen("a", "a", "a"), "it is tried again after a while")

	sink.mu.Lock()
	sink.senders[partition{"topic", 0}] = &sender{since: time.Now().Add(-2 * stuckAfter)}
	sink.senders[partition{"topic", 1}] = &sender{since: time.Now().Add(time.Hour)}
	sink.mu.Unlock()
	require.Equal(t, []int{1, 2}, chosen("a", "a", "a"), "one does not answer")
	sink.mu.Lock()
	clear(sink.senders)
	sink.mu.Unlock()
}

func TestFailuresAreForgotten(t *testing.T) {
	t.Parallel()
	f := failures{at: map[partition]time.Time{}}
	for number := range 4 * keptFailures {
		f.note(partition{"topic", number}, true)
		f.at[partition{"topic", number}] = time.Now().Add(-avoidFor)
	}
	require.LessOrEqual(t, len(f.at), keptFailures)
}
