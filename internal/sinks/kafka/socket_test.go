package kafka

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/testenv"
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
				time.Sleep(900 * time.Millisecond)
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
	broker := &testBroker{config: Config{Brokers: testenv.Kafka(t), PublishTimeout: 2 * time.Second}}
	topic := testenv.Name(t, "topic")
	broker.makeTopic(t, topic, 2)
	sink := newSink(t, broker.config)
	link := newSlowLink(t, 200_000, broker.config.Brokers[0])
	sink.brokers.opener.dial = link.dial
	requireClass(t, publish(t, sink, newMessage(t, topic, "")), sinks.Acknowledged, "")

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
	require.Greater(t, time.Since(began), 6*time.Second, "the link is slow")
	stored := 0
	for _, records := range broker.readAll(t, topic, len(batch)+1) {
		stored += len(records)
	}
	require.Equal(t, len(batch)+1, stored)
}

// slowLink passes on what is written to a broker at so many bytes a second, all
// connections together, and holds little itself.
type slowLink struct {
	upstream string
	listener net.Listener
	share    chan struct{} // of 1, held while some bytes pass
	rate     int
	serving  sync.WaitGroup
	ctx      context.Context //nolint:containedctx // the test's
}

func newSlowLink(t *testing.T, rate int, upstream string) *slowLink {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &slowLink{upstream: upstream, listener: listener, share: make(chan struct{}, 1), rate: rate, ctx: t.Context()}
	l.serving.Go(l.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		l.serving.Wait()
	})
	return l
}

// dial stands in for the sink's own way to a broker, whatever its address.
func (l *slowLink) dial(ctx context.Context, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", l.listener.Addr().String())
}

func (l *slowLink) accept() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		broker, err := (&net.Dialer{}).DialContext(l.ctx, "tcp", l.upstream)
		if err != nil {
			_ = client.Close()
			continue
		}
		_ = client.(*net.TCPConn).SetReadBuffer(16 << 10)
		ended := func() { _ = client.Close(); _ = broker.Close() }
		l.serving.Go(func() { defer ended(); _, _ = io.Copy(client, broker) })
		l.serving.Go(func() { defer ended(); l.pass(broker, client) })
		l.serving.Go(func() { <-l.ctx.Done(); ended() })
	}
}

// pass copies a little at a time, and holds the link for as long as it takes.
func (l *slowLink) pass(to io.Writer, from io.Reader) {
	some := make([]byte, 4<<10)
	for {
		n, err := from.Read(some)
		l.share <- struct{}{}
		<-time.After(time.Duration(n) * time.Second / time.Duration(l.rate))
		<-l.share
		if _, failed := to.Write(some[:n]); failed != nil || err != nil {
			return
		}
	}
}
