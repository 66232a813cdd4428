// Package redial holds one connection to a broker and makes the next one when
// a caller asks for it.
//
// A [Redialer] is in one of three states: it has a live connection; or it dials,
// once for all callers; or it answers with the last error until its pause is
// over. Nothing is dialled without a caller, and no call waits for a backoff to end.
//
// It knows nothing of what a connection carries. The sinks of NATS and RabbitMQ
// use it, one Redialer for each connection that they keep.
package redial

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// ErrClosed is what a closed Redialer answers.
var ErrClosed = errors.New("sink is closed")

// Conn is one connection, from login to its end.
type Conn interface {
	// Done is closed when the connection can carry nothing any more.
	Done() <-chan struct{}
	// Err is why it ended. It is called after Done is closed.
	Err() error
	// Close ends the connection, if it has not ended, and waits for all that it
	// runs. It bounds its own time. The Redialer calls it once for each connection.
	Close()
	// Server names the server that it connected to, without a login, for logs. It must
	// not block: it is called while other callers wait.
	Server() string
}

// Config says how to connect. All fields but Stable are required.
type Config[C Conn] struct {
	// Broker names the broker in the log's text: "NATS".
	Broker string
	// Dial makes one attempt, at each of several servers if there are, and bounds
	// its own time. Its ctx ends when the Redialer is closed. There is never more
	// than one call at a time.
	Dial func(ctx context.Context) (C, error)
	// Initial is the pause after the first failure in a row, Limit the longest.
	Initial, Limit time.Duration
	// Stable is how old a connection must get for its end not to count as a
	// failure: a server that lets us in and drops us is not dialled in a loop.
	Stable time.Duration
	// Logger hears once of each outage: that the connection ended, that dialling
	// failed, and that there is a connection again.
	Logger *slog.Logger
}

// Redialer keeps one connection. Its goroutines are the one that dials and one
// that waits for the connection's end; Close ends both and waits for them. It is
// safe for concurrent use.
type Redialer[C Conn] struct {
	config Config[C]
	root   context.Context //nolint:containedctx // the Redialer's life, ended by Close
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	current  *connection[C] // nil while there is no connection
	dialing  *attempt[C]    // nil if none is under way
	backoff  wait.Backoff
	retryAt  time.Time
	lastErr  error // why there is no connection, for callers before retryAt
	isLogged bool  // that dialling fails, in this outage
}

// connection is a connection and when it was made.
type connection[C Conn] struct {
	conn C
	born time.Time
}

// attempt is one call of Dial, for which several callers may wait.
type attempt[C Conn] struct {
	done chan struct{}
	conn C
	err  error
}

// New returns a Redialer that dials when it is first asked.
func New[C Conn](config Config[C]) *Redialer[C] {
	root, cancel := context.WithCancel(context.Background()) //nolint:forbidigo // its own life, ended by Close
	return &Redialer[C]{
		config: config, root: root, cancel: cancel,
		backoff: wait.Backoff{Initial: config.Initial, Limit: config.Limit},
	}
}

// Get returns the live connection, or dials and waits for the result until ctx
// ends. In the pause after a failure it answers with the last error at once,
// unless now is set: then it dials all the same. It answers [ErrClosed] after
// Close, and with ctx's cause where that came first.
func (r *Redialer[C]) Get(ctx context.Context, now bool) (conn C, err error) {
	if ctx.Err() != nil {
		return conn, fmt.Errorf("connect to %s: %w", r.config.Broker, context.Cause(ctx))
	}
	conn, a, err := r.look(now)
	if a == nil {
		return conn, err
	}
	select {
	case <-a.done:
		return a.conn, a.err
	case <-ctx.Done():
		return conn, fmt.Errorf("connect to %s: %w", r.config.Broker, context.Cause(ctx))
	}
}

// Current returns the live connection if there is one. It does not dial.
func (r *Redialer[C]) Current() (conn C, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live()
}

// live is called with r.mu held.
func (r *Redialer[C]) live() (conn C, ok bool) {
	if r.current == nil {
		return conn, false
	}
	select {
	case <-r.current.conn.Done():
		r.lost(r.current) // before the goroutine that watches it did
		return conn, false
	default:
		return r.current.conn, true
	}
}

// look returns the connection, or the attempt to wait for, or why there is neither.
func (r *Redialer[C]) look(now bool) (conn C, a *attempt[C], err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return conn, nil, ErrClosed
	}
	if conn, ok := r.live(); ok {
		return conn, nil, nil
	}
	if r.dialing == nil {
		if !now && time.Now().Before(r.retryAt) {
			return conn, nil, r.lastErr
		}
		a := &attempt[C]{done: make(chan struct{})}
		r.dialing = a
		r.work.Go(func() { r.dial(a) })
	}
	return conn, r.dialing, nil
}

// dial makes the attempt and stays with the connection until it ends.
func (r *Redialer[C]) dial(a *attempt[C]) {
	conn, err := r.config.Dial(r.root)
	h := r.settle(a, conn, err)
	close(a.done)
	if err != nil {
		return
	}
	select {
	case <-conn.Done():
		r.mu.Lock()
		r.lost(h)
		r.mu.Unlock()
	case <-r.root.Done():
	}
	conn.Close()
}

// settle notes how the attempt ended.
func (r *Redialer[C]) settle(a *attempt[C], conn C, err error) *connection[C] {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dialing = nil
	switch {
	case r.closed:
		a.err = ErrClosed
		return nil
	case err != nil:
		a.err = err
		r.failed(err)
		if !r.isLogged {
			r.isLogged = true
			r.config.Logger.WarnContext(r.root, "cannot connect to "+r.config.Broker, "event", "sink_connect_failed", "err", err)
		}
		return nil
	}
	a.conn, r.isLogged = conn, false
	r.current = &connection[C]{conn: conn, born: time.Now()}
	r.config.Logger.InfoContext(r.root, "connected to "+r.config.Broker, "event", "sink_connected", "server", conn.Server())
	return r.current
}

// lost notes, once, that a connection has ended. It is called with r.mu held.
func (r *Redialer[C]) lost(h *connection[C]) {
	if h == nil || r.current != h || r.closed {
		return
	}
	r.current = nil
	err := h.conn.Err()
	if time.Since(h.born) >= r.config.Stable {
		r.backoff.Reset()
		r.retryAt = time.Time{}
	} else {
		r.failed(err)
	}
	r.config.Logger.WarnContext(r.root, "connection to "+r.config.Broker+" ended", "event", "sink_disconnected", "server", h.conn.Server(), "err", err)
}

// failed begins the next pause. It is called with r.mu held.
func (r *Redialer[C]) failed(err error) {
	r.lastErr = err
	r.retryAt = time.Now().Add(r.backoff.Next())
}

// Close breaks off dialling, ends the connection and waits for both, at most
// until ctx ends. It may be called twice.
func (r *Redialer[C]) Close(ctx context.Context) error {
	r.mu.Lock()
	if !r.closed {
		r.closed = true
		if r.current != nil {
			r.config.Logger.InfoContext(ctx, "connection to "+r.config.Broker+" closed", "event", "sink_disconnected", "server", r.current.conn.Server())
		}
		r.current = nil
	}
	r.mu.Unlock()
	r.cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.work.Wait()
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close connection to %s: %w", r.config.Broker, ctx.Err())
	}
}
