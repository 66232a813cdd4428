package rabbitmq

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// TestBlocked has a broker that is short of disk until the test lets it do with less.
func TestBlocked(t *testing.T) {
	t.Parallel()
	server := testenv.StartRabbitMQ(t, "")
	freeAtLeast := func(bytes int64) {
		server.RabbitEval(fmt.Sprintf("ok = rabbit_disk_monitor:set_disk_free_limit(%d).", bytes))
	}
	freeAtLeast(math.MaxInt64)

	topic := testenv.Name(t, "topic")
	declare(t, server.URL(), topic, nil)
	sink := newSink(t, Config{URL: server.URL(), Connections: 1})
	require.Eventually(t, func() bool { return sink.Ping(t.Context()) == nil }, 2*time.Minute, 50*time.Millisecond)
	short := func() []sinks.Outcome {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return sinks.Publish(ctx, sink, []message.Message{newMessage(t, "orders", topic)})
	}
	// The broker says that it blocks us when we publish; that message may come later.
	requireOutcome(t, short()[0], sinks.Unknown, sinks.ReasonTimeout)
	requireOutcome(t, short()[0], sinks.Unavailable, sinks.ReasonBroker) // At once, not at the deadline.
	require.ErrorIs(t, sink.Ping(t.Context()), errBlocked)

	closing, err := New(Config{URL: server.URL(), Connections: 1}, quiet())
	require.NoError(t, err)
	ended := make(chan sinks.Outcome, 1)
	go func() { ended <- publish(t, closing, newMessage(t, "orders", topic))[0] }()
	require.Eventually(t, func() bool { return isConnected(closing) }, 2*time.Minute, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.NoError(t, closing.Close(ctx))
	require.Equal(t, sinks.ReasonClosed, (<-ended).Reason)

	freeAtLeast(1)
	require.Eventually(t, func() bool { return short()[0].Class == sinks.Acknowledged }, 2*time.Minute, 50*time.Millisecond)
	require.NoError(t, sink.Ping(t.Context()))
}
