package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

const (
	// dialTimeout is for making a connection, with TLS.
	dialTimeout = 5 * time.Second
	keepAlive   = 30 * time.Second
	// idleFor is how long a connection is kept unused: less than servers do, the shortest of
	// which keep theirs for 5 s. What goes out as the server closes is Unknown.
	idleFor = 4 * time.Second
	// unsentMost bounds what the kernel takes and cannot send yet, so that on a slow link
	// what was written is soon on its way.
	unsentMost = 64 << 10
	// answerHeadersMost bounds the headers of an answer.
	answerHeadersMost = 64 << 10
	// silence is how long a connection of HTTP/2 may be without a word until it is asked for
	// one, and pongTimeout how long that may take: requests that share it have no deadline of
	// the connection's.
	silence     = 5 * time.Second
	pongTimeout = 5 * time.Second
	// pauseMost bounds how long an endpoint may have us wait before it is asked again.
	pauseMost = time.Hour
)

// endpoint is where the messages of one topic go. It has connections of its own: on a shared
// one, an endpoint that reads slowly would hold up its neighbour.
type endpoint struct {
	name          string
	url           *url.URL
	files         tlsclient.Files
	secrets       *secret.WatchedFile[[]signer]
	authorization *secret.WatchedFile[string] // nil if there is none
	transport     *http.Transport
	slots         chan struct{} // one for each request that is under way

	mu        sync.Mutex
	heldUntil time.Time     // the endpoint wants no requests before
	held      sinks.Outcome // what it said
	failedAt  time.Time     // when a request, or a connection, failed last without an answer
	failure   sinks.Outcome
	alive     time.Time // when it answered last
}

func newEndpoint(name string, config Config, logger *slog.Logger) (*endpoint, error) {
	settings := config.Endpoints[name]
	e := &endpoint{name: name, files: config.files(), slots: make(chan struct{}, config.requests())}
	var err error
	if e.url, err = url.Parse(settings.URL); err != nil {
		return nil, errors.New("url: is no valid URL")
	}
	if e.secrets, err = secret.Watch(settings.Secrets, "secrets", parseSecrets, logger); err != nil {
		return nil, err
	}
	if settings.Authorization != "" {
		if e.authorization, err = secret.Watch(settings.Authorization, "authorization", parseAuthorization, logger); err != nil {
			return nil, err
		}
	}
	// Nobody's proxy: an address of the environment would get the messages.
	e.transport = &http.Transport{
		DialContext: e.dial, DialTLSContext: e.dialTLS, ForceAttemptHTTP2: true,
		HTTP2:        &http.HTTP2Config{SendPingTimeout: silence, PingTimeout: pongTimeout},
		MaxIdleConns: cap(e.slots), MaxIdleConnsPerHost: cap(e.slots), IdleConnTimeout: idleFor,
		MaxResponseHeaderBytes: answerHeadersMost, DisableCompression: true,
	}
	return e, nil
}

// dial connects without TLS.
func (e *endpoint) dial(ctx context.Context, network, addr string) (net.Conn, error) {
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

// dialTLS connects, with the files as they are now.
func (e *endpoint) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := e.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	secured, err := e.files.Client(ctx, conn, e.url.Hostname(), "h2", "http/1.1")
	if err != nil {
		_ = conn.Close() // It carries nothing.
		return nil, err
	}
	return secured.Conn, nil // net/http knows only this type for HTTP/2.
}

// ping makes a connection.
func (e *endpoint) ping(ctx context.Context) error {
	dial := e.dialTLS
	if e.url.Scheme == "http" {
		dial = e.dial
	}
	conn, err := dial(ctx, "tcp", address(e.url))
	if err != nil {
		return fmt.Errorf("endpoint %s: %w", e.name, err)
	}
	_ = conn.Close() // It has carried nothing.
	return nil
}

// address is the host and port of a URL.
func address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// take waits for a slot, which the caller gives back by release. There is none, and ok is
// false, where the endpoint wants no requests now, where others have failed meanwhile,
// or where nothing was answered for the time of the timeout.
func (e *endpoint) take(ctx context.Context, timeout time.Duration) (refusal sinks.Outcome, ok bool) {
	began := time.Now()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		select {
		case e.slots <- struct{}{}:
			if refusal, ok = e.mayAsk(began); !ok {
				e.release()
			}
			return refusal, ok
		case <-ctx.Done():
			return classify(context.Cause(ctx), unsent), false
		case <-timer.C:
			quiet := e.quiet(began)
			if quiet >= timeout {
				return classify(errNoSlot, unsent), false
			}
			timer.Reset(timeout - quiet)
		}
	}
}

func (e *endpoint) release() { <-e.slots }

// mayAsk reports whether a message that has waited since then may be posted, and else why not.
func (e *endpoint) mayAsk(since time.Time) (refusal sinks.Outcome, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case time.Now().Before(e.heldUntil):
		refusal = e.held
	case e.failedAt.After(since): // It would fare no better.
		refusal = e.failure
	default:
		return sinks.Outcome{}, true
	}
	refusal.Class, refusal.OfRoute = sinks.Unavailable, false
	return refusal, false
}

// quiet is for how long the endpoint has answered nothing, since then at the most.
func (e *endpoint) quiet(since time.Time) time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.alive.After(since) {
		since = e.alive
	}
	return time.Since(since)
}

// note learns from what became of a request: whether it was answered, and for how long the
// endpoint wants no others.
func (e *endpoint) note(outcome sinks.Outcome, isAnswered bool, pause time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if !isAnswered {
		e.failedAt, e.failure = now, outcome
		return
	}
	e.alive = now
	if pause > 0 {
		e.heldUntil, e.held = now.Add(min(pause, pauseMost)), outcome
	}
}
