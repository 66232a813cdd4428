// Package overhttp makes the HTTP requests of sinks: a deadline counts from a request's last
// progress, it is known how far each came, nothing is sent twice, and the requests of a route
// that are under way are bounded.
package overhttp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

// ErrTimeout is why the context of an [Attempt] has ended that made no progress.
var ErrTimeout = errors.New("no progress within the publish timeout")

// Sent says how far a request came.
type Sent int32

const (
	// Unsent means that no connection had any of it.
	Unsent Sent = iota
	// Fresh means that a connection had it that had carried nothing before.
	Fresh
	// Used means that a connection had it that the server had accepted.
	Used
)

// Attempt is a request on its way. Its timeout counts from its last progress: on the way to a
// connection, on the way out, or until the answer begins.
type Attempt struct {
	timeout time.Duration
	timer   *time.Timer
	cancel  context.CancelCauseFunc
	sent    atomic.Int32
}

type attemptKey struct{}

// Begin returns a context for one request, which ends without progress. The caller calls End.
func Begin(ctx context.Context, timeout time.Duration) (context.Context, *Attempt) {
	a := &Attempt{timeout: timeout}
	ctx, a.cancel = context.WithCancelCause(ctx)
	a.timer = time.AfterFunc(timeout, func() { a.cancel(ErrTimeout) })
	return context.WithValue(ctx, attemptKey{}, a), a
}

// End ends the context.
func (a *Attempt) End() {
	a.timer.Stop()
	a.cancel(nil)
}

// Within bounds what is left to do.
func (a *Attempt) Within(timeout time.Duration) { a.timer.Reset(timeout) }

// Sent is how far the request came.
func (a *Attempt) Sent() Sent { return Sent(a.sent.Load()) }

func (a *Attempt) progress() { a.timer.Reset(a.timeout) }

// Client makes the requests of attempts. Redirects are not followed, and nobody's proxy is used.
type Client struct{ Transport *http.Transport }

const (
	// IdleFor is how long a connection to a service is kept unused, less than AWS and Google do. What goes out as the
	// server closes is Unknown.
	IdleFor = 30 * time.Second
	// connectionsMost bounds a sink's connections to a service, and idleMost how many of them are kept unused.
	connectionsMost = 1024
	idleMost        = 256
)

// ServiceClient makes the requests of a sink to one service, for all routes.
func ServiceClient(files tlsclient.Files) Client {
	transport := Dialer{Files: files, Protocols: []string{"http/1.1"}}.Transport(idleMost, IdleFor)
	transport.MaxConnsPerHost = connectionsMost
	return Client{Transport: transport}
}

// Do makes a request whose context is that of an [Attempt]. It is not made again after a failure.
func (c Client) Do(request *http.Request) (*http.Response, error) {
	a, ok := request.Context().Value(attemptKey{}).(*Attempt)
	if !ok {
		return nil, errors.New("a request needs an attempt")
	}
	request = request.WithContext(httptrace.WithClientTrace(request.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		a.progress()
		if info.Reused {
			a.sent.Store(int32(Used))
		} else {
			a.sent.Store(int32(Fresh))
		}
	}}))
	// A request with a body that cannot be read again is one that net/http never sends again.
	if request.GetBody = nil; request.Body != nil {
		request.Body = &body{request.Body, a}
	}
	return c.Transport.RoundTrip(request)
}

// body tells of each part that is read of it, which is when the connection has taken the one before.
type body struct {
	io.ReadCloser
	attempt *Attempt
}

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	b.attempt.progress()
	return b.ReadCloser.Read(p)
}

const (
	// dialTimeout is for making a connection, with TLS.
	dialTimeout = 5 * time.Second
	keepAlive   = 30 * time.Second
	// unsentMost bounds what the kernel takes and cannot send yet, so that on a slow link
	// what was written is soon on its way.
	unsentMost = 64 << 10
	// answerHeadersMost bounds the headers of an answer.
	answerHeadersMost = 64 << 10
)

// Dialer makes connections, with the files as they are at that time.
type Dialer struct {
	Files     tlsclient.Files
	Protocols []string // ALPN
}

// Transport makes connections with the dialer, as many as there are requests. The caller bounds these.
func (d Dialer) Transport(idle int, idleFor time.Duration) *http.Transport {
	return &http.Transport{
		DialContext: d.plain, DialTLSContext: d.secured,
		MaxIdleConns: idle, MaxIdleConnsPerHost: idle, IdleConnTimeout: idleFor,
		MaxResponseHeaderBytes: answerHeadersMost, DisableCompression: true,
	}
}

func (Dialer) plain(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(unsentMost) // Without, slow links have less precise deadlines.
	}
	return conn, nil
}

func (d Dialer) secured(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	conn, err := d.plain(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	secured, err := d.Files.Client(ctx, conn, host, d.Protocols...)
	if err != nil {
		_ = conn.Close() // It carries nothing.
		return nil, err
	}
	return secured.Conn, nil // net/http knows only this type for HTTP/2.
}

// Ping makes a connection to a URL's host.
func (d Dialer) Ping(ctx context.Context, u *url.URL) error {
	dial := d.secured
	if u.Scheme == "http" {
		dial = d.plain
	}
	conn, err := dial(ctx, "tcp", Address(u))
	if err != nil {
		return err
	}
	return conn.Close() // It has carried nothing.
}

// Address is the host and port of a URL.
func Address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}
