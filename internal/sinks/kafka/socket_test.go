package kafka

import (
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// TestSocketWaitsForProgress writes to a peer that takes a little now and then,
// until it takes nothing more.
func TestSocketWaitsForProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		s := newSocket(near, time.Second)
		const part = 1000
		go func() {
			for range 50 {
				<-time.After(900 * time.Millisecond)
				_, _ = io.ReadFull(far, make([]byte, part))
			}
		}()
		written, err := s.Write(make([]byte, 50*part))
		require.NoError(t, err)
		require.Equal(t, 50*part, written)

		began := time.Now()
		_, err = s.Write(make([]byte, part))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		_, err = s.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began), "it has failed for good")
		require.NoError(t, s.Close())
	})
}

// TestSlowLink publishes what the link needs several times the publish timeout for.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	broker := &testBroker{config: Config{Brokers: testenv.Kafka(t), PublishTimeout: 5 * time.Second}}
	topic := testenv.Name(t, "topic")
	broker.makeTopic(t, topic, 2)
	sink := newSink(t, broker.config)
	sink.brokers.opener.dial = slowly(t, broker.config.Brokers[0], 80_000)
	requireClass(t, publishOnceConnected(t, sink, newMessage(t, topic, "")), sinks.Acknowledged, "")

	var batch []message.Message
	for _, size := range []int{900_000, 1000, 30_000, 30_000, 900_000} {
		m := newMessage(t, topic, "key")
		m.Body = make([]byte, size)
		batch = append(batch, m)
	}
	outcomes := sinks.NewOutcomes(len(batch))
	began := time.Now()
	sink.Publish(t.Context(), batch, outcomes)
	requireClass(t, outcomes.All(), sinks.Acknowledged, "")
	require.Greater(t, time.Since(began), 15*time.Second, "the link is slow")
	stored := 0
	for _, records := range broker.readAll(t, topic, len(batch)+1) {
		stored += len(records)
	}
	require.Equal(t, len(batch)+1, stored)
}
