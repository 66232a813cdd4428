package kafka

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

// TestUnusedConnectionsAreClosed moves the leader to another address, as a cluster does
// whose brokers are replaced one by one, and then publishes nothing more.
func TestUnusedConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	before, after := newFake(t, always(answer{})), newFake(t, always(answer{}))
	sink := before.sink(t)
	sink.brokers.keep = 100 * time.Millisecond
	requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Acknowledged, "")
	require.Positive(t, before.openConnections())

	before.lead(after.listener.Addr().String())
	after.lead(after.listener.Addr().String())
	sink.topics.doubt("topic")
	require.Eventually(t, func() bool {
		requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Acknowledged, "")
		return before.openConnections() == 0
	}, patience, time.Millisecond, "the address is not used any more, another one is")
	require.NotEmpty(t, after.seen())

	require.Eventually(t, func() bool { return after.openConnections() == 0 }, patience, time.Millisecond, "nothing is used any more")
	require.Eventually(t, func() bool {
		sink.brokers.mu.Lock()
		defer sink.brokers.mu.Unlock()
		return len(sink.brokers.byAddress) == 0 && sink.brokers.sweeper == nil
	}, patience, time.Millisecond, "what is remembered of addresses is bounded")
	requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Acknowledged, "")
}

// TestUnreachableAddressIsForgotten has a leader whose address never answered.
func TestUnreachableAddressIsForgotten(t *testing.T) {
	t.Parallel()
	gone, broker := newFake(t, always(answer{})), newFake(t, always(answer{}))
	gone.stop()
	broker.lead(gone.listener.Addr().String())
	sink := broker.sink(t)
	requireClass(t, publish(t, sink, newMessage(t, "topic", "key")), sinks.Unavailable, sinks.ReasonConnection)
	sink.brokers.mu.Lock()
	defer sink.brokers.mu.Unlock()
	require.NotContains(t, sink.brokers.byAddress, gone.listener.Addr().String())
}
