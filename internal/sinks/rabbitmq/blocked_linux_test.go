package rabbitmq

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// TestBlocked has a broker that is short of disk until the test gives it some.
func TestBlocked(t *testing.T) {
	t.Parallel()
	filler := filepath.Join(t.TempDir(), "filler")
	const fill = 4 << 30
	file, err := os.Create(filler)
	require.NoError(t, err)
	require.NoError(t, syscall.Fallocate(int(file.Fd()), 0, 0, fill))
	require.NoError(t, file.Close())
	var disk syscall.Statfs_t
	require.NoError(t, syscall.Statfs(filepath.Dir(filler), &disk))
	limit := disk.Bavail*uint64(disk.Bsize) + fill/2
	server := testenv.StartRabbitMQ(t, fmt.Sprintf("disk_free_limit.absolute = %d\n", limit))

	topic := testenv.Name(t, "topic")
	declare(t, server.URL(), topic, nil)
	sink := newSink(t, Config{URL: server.URL(), Connections: 1})
	short := func() []sinks.Outcome {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // It connects first.
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
	require.Eventually(t, func() bool { return isConnected(closing) }, time.Minute, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.NoError(t, closing.Close(ctx))
	require.Equal(t, sinks.ReasonClosed, (<-ended).Reason)

	require.NoError(t, os.Remove(filler))
	require.Eventually(t, func() bool { return short()[0].Class == sinks.Acknowledged }, 30*time.Second, 50*time.Millisecond)
	require.NoError(t, sink.Ping(t.Context()))
}
