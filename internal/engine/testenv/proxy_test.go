package testenv_test

import (
	"bufio"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// quiet is how long a test watches that nothing comes.
const quiet = 100 * time.Millisecond

// burst is what an idle link may have saved up.
const burst = 10 * time.Millisecond

// echoServer answers each line with itself, and reports it.
func echoServer(t *testing.T) (addr string, lines <-chan string) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	seen := make(chan string, 100)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				for in := bufio.NewScanner(conn); in.Scan(); {
					seen <- in.Text()
					_, _ = io.WriteString(conn, in.Text()+"\n")
				}
			}()
		}
	}()
	return listener.Addr().String(), seen
}

type peer struct {
	*testing.T
	conn net.Conn
}

func connect(t *testing.T, addr string) peer {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return peer{t, conn}
}

func (p peer) send(line string) {
	p.Helper()
	_, err := io.WriteString(p.conn, line+"\n")
	require.NoError(p, err)
}

// receive reads a line within d, or returns the error.
func (p peer) receive(d time.Duration) (string, error) {
	p.Helper()
	require.NoError(p, p.conn.SetReadDeadline(time.Now().Add(d)))
	buf := make([]byte, 100)
	n, err := p.conn.Read(buf)
	return string(buf[:n]), err
}

func (p peer) receives(line string) {
	p.Helper()
	got, err := p.receive(5 * time.Second)
	require.NoError(p, err)
	require.Equal(p, line+"\n", got)
}

func (p peer) receivesNothing() {
	p.Helper()
	got, err := p.receive(quiet)
	require.ErrorIs(p, err, os.ErrDeadlineExceeded, "the connection must stay; it brought %q", got)
}

func arrives(t *testing.T, lines <-chan string, want string) {
	t.Helper()
	select {
	case got := <-lines:
		require.Equal(t, want, got)
	case <-time.After(5 * time.Second):
		require.Fail(t, "no request arrived")
	}
}

func TestProxyPasses(t *testing.T) {
	t.Parallel()
	addr, _ := echoServer(t)
	p := connect(t, testenv.NewProxy(t, addr).Addr())
	p.send("a")
	p.receives("a")
}

func TestProxySwallowsReplies(t *testing.T) {
	t.Parallel()
	addr, lines := echoServer(t)
	proxy := testenv.NewProxy(t, addr)
	p := connect(t, proxy.Addr())
	proxy.SwallowReplies(true)
	p.send("a")
	arrives(t, lines, "a")
	p.receivesNothing()
	proxy.SwallowReplies(false)
	p.send("b")
	arrives(t, lines, "b")
	p.receivesNothing()
	fresh := connect(t, proxy.Addr())
	fresh.send("c")
	fresh.receives("c")
}

func TestProxyIsABlackhole(t *testing.T) {
	t.Parallel()
	addr, lines := echoServer(t)
	proxy := testenv.NewProxy(t, addr)
	p := connect(t, proxy.Addr())
	proxy.Blackhole(true)
	p.send("a")
	p.receivesNothing()
	require.Empty(t, lines)
	proxy.Blackhole(false)
	arrives(t, lines, "a")
	p.receives("a")
}

func TestProxyCuts(t *testing.T) {
	t.Parallel()
	addr, _ := echoServer(t)
	proxy := testenv.NewProxy(t, addr)
	p := connect(t, proxy.Addr())
	p.send("a")
	p.receives("a")
	proxy.Cut()
	_, err := p.receive(5 * time.Second)
	require.Error(t, err)
	require.NotErrorIs(t, err, os.ErrDeadlineExceeded, "it must be closed, not silent")
	fresh := connect(t, proxy.Addr())
	fresh.send("b")
	fresh.receives("b")
}

func TestProxyRefusesNewConnections(t *testing.T) {
	t.Parallel()
	addr, _ := echoServer(t)
	proxy := testenv.NewProxy(t, addr)
	p := connect(t, proxy.Addr())
	p.send("a")
	p.receives("a")
	proxy.Refuse(true)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", proxy.Addr())
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
		_ = conn.Close()
	}
	require.Error(t, err)
	p.send("b")
	p.receives("b")
}

func TestProxyDeliversLateEvenAfterTheClientLeft(t *testing.T) {
	t.Parallel()
	addr, lines := echoServer(t)
	proxy := testenv.NewProxy(t, addr)
	p := connect(t, proxy.Addr())
	proxy.Delay(3 * quiet)
	begin := time.Now()
	p.send("late")
	p.receivesNothing()
	require.NoError(t, p.conn.Close())
	arrives(t, lines, "late")
	require.GreaterOrEqual(t, time.Since(begin), 3*quiet)
}

// A slow link carries so many bytes a second, holds hardly any of them, and is
// as fast as ever afterwards.
func TestProxyRate(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	const rate, size, held = 400_000, 1_200_000, 600_000
	received := make(chan time.Time, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		for {
			if n, _ := io.CopyN(io.Discard, conn, size); n < size {
				return
			}
			received <- time.Now()
		}
	}()
	proxy := testenv.NewProxy(t, listener.Addr().String())
	proxy.Rate(rate)
	conn := connect(t, proxy.Addr()).conn.(*net.TCPConn)
	require.NoError(t, conn.SetWriteBuffer(64<<10))

	began := time.Now()
	_, err = conn.Write(make([]byte, size))
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began), (size-held)*time.Second/rate, "the proxy must not swallow it")
	took := (<-received).Sub(began)
	require.GreaterOrEqual(t, took+burst, size*time.Second/rate)

	proxy.Rate(0)
	began = time.Now()
	_, err = conn.Write(make([]byte, size))
	require.NoError(t, err)
	require.Less(t, (<-received).Sub(began), took/2)
}

// Replies have a rate of their own, and what passes either way is counted.
func TestProxyRateReplies(t *testing.T) {
	t.Parallel()
	addr, _ := echoServer(t)
	proxy := testenv.NewProxy(t, addr)
	const rate, size = 50_000, 20_000
	proxy.RateReplies(rate)
	p := connect(t, proxy.Addr())
	began := time.Now()
	p.send(strings.Repeat("a", size-1))
	require.NoError(t, p.conn.SetReadDeadline(began.Add(10*time.Second)))
	_, err := io.ReadFull(p.conn, make([]byte, size))
	require.NoError(t, err)
	require.GreaterOrEqual(t, time.Since(began)+burst, size*time.Second/rate)
	requests, replies := proxy.Carried()
	require.Equal(t, int64(size), requests)
	require.Equal(t, int64(size), replies)
}

// A server that must know the proxy's address is started after it.
func TestProxyForwardsElsewhere(t *testing.T) {
	t.Parallel()
	proxy := testenv.NewProxy(t, "127.0.0.1:1")
	addr, _ := echoServer(t)
	proxy.Forward(addr)
	p := connect(t, proxy.Addr())
	p.send("a")
	p.receives("a")
}
