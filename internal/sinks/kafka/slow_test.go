package kafka

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// slowLink passes on what is written to a broker at so many bytes a second, all
// connections together. A sink has a connection for each busy partition, and a
// link does not hold more for that: so it keeps hardly anything of each, less
// than testenv's proxy.
type slowLink struct {
	upstream string
	listener net.Listener
	rate     int
	serving  sync.WaitGroup
	ctx      context.Context //nolint:containedctx // the test's

	mu   sync.Mutex
	free time.Time // when the link has carried all that it was given
}

// slowly leads all connections of a sink over one slow link, in its dialler: a
// broker tells the address at which it listens, not that of a proxy.
func slowly(t testing.TB, broker string, bytesPerSecond int) func(context.Context, string) (net.Conn, error) {
	t.Helper()
	const held = 8 << 10 // bytes, of each connection
	listening := net.ListenConfig{Control: func(_, _ string, socket syscall.RawConn) error {
		var failed error
		err := socket.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, held)
		})
		return errors.Join(err, failed)
	}}
	listener, err := listening.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &slowLink{upstream: broker, listener: listener, rate: bytesPerSecond, ctx: t.Context()}
	l.serving.Go(l.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		l.serving.Wait()
	})
	return func(ctx context.Context, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
	}
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
		ended := func() { _ = client.Close(); _ = broker.Close() }
		l.serving.Go(func() { defer ended(); _, _ = io.Copy(client, broker) })
		l.serving.Go(func() { defer ended(); l.pass(broker, client) })
		l.serving.Go(func() { <-l.ctx.Done(); ended() })
	}
}

// pass copies a little at a time, when the link is free for it.
func (l *slowLink) pass(to io.Writer, from io.Reader) {
	some := make([]byte, 2<<10)
	for {
		n, err := from.Read(some)
		<-time.After(time.Until(l.carried(n)))
		if _, failed := to.Write(some[:n]); failed != nil || err != nil {
			return
		}
	}
}

// carried is when the link will have carried n bytes more.
func (l *slowLink) carried(n int) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(n) * time.Second / time.Duration(l.rate))
	return l.free
}
