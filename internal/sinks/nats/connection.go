package nats

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// connection is a connection to one server, from login to its end. Its
// goroutines are the client's and those of spawn; Close waits for all.
type connection struct {
	root      context.Context //nolint:containedctx // the sink's life
	nc        *natsgo.Conn
	server    string // its URL, without a password
	js        jetstream.JetStream
	logger    *slog.Logger
	timeout   time.Duration // for a publish
	socket    atomic.Pointer[socket]
	cause     atomic.Pointer[error] // why we broke it off, or it ended
	down      chan struct{}         // closed when the connection has ended
	inbox     string                // what the subjects of all answers begin with
	drained   chan struct{}         // closed when no answer can come any more
	stream    string                // of the last ack; onAck's alone, which is not called twice at a time
	questions questions

	turn   chan struct{} // of 1: taken by the submission that hands over
	writer writer        // of the holder of the turn

	mu            sync.Mutex
	waiting       publications
	reached       uint64 // the highest number that was answered
	reachedBefore uint64 // at the last tick
	ticks         uint64 // since the connection was made
	denied        denials

	work   sync.WaitGroup
	starts sync.Mutex
	ending bool // spawn starts nothing more; starts guards it
}

// openConnection connects to one server and subscribes to the acks.
func openConnection(root context.Context, config *Config, server string, logger *slog.Logger) (*connection, error) {
	l := &connection{
		root: root, logger: logger, timeout: config.PublishTimeout, down: make(chan struct{}),
		inbox: natsgo.NewInbox() + ".", drained: make(chan struct{}), questions: newQuestions(),
		turn: make(chan struct{}, 1), denied: newDenials(),
		writer: newWriter(),
	}
	nc, err := config.connect(&dialer{ctx: root, wrap: l.watchSocket}, server, l.options)
	if err != nil {
		if s := l.socket.Load(); s != nil {
			_ = s.Close()
		}
		return nil, err
	}
	l.nc, l.server = nc, nc.ConnectedUrlRedacted()
	if err := l.subscribe(root); err != nil {
		l.abort(err)
		nc.Close()
		<-l.down
		return nil, fmt.Errorf("subscribe to acks: %w", err)
	}
	l.spawn(l.watch)
	return l, nil
}

// options are those of a publisher's connection.
func (c *connection) options(options *natsgo.Options) {
	options.ClosedCB = c.onClosed
	options.AsyncErrorCB = c.onError
	options.FlusherTimeout = 0 // The socket bounds each write itself.
	// A server that lives answers pings, so that one which is silent for a publish
	// timeout is dead. The client itself waits as long as it always did.
	options.PingInterval = max(min(pingInterval, c.timeout/3), time.Millisecond)
	options.MaxPingsOut = int((pingsOut + 1) * pingInterval / options.PingInterval)
}

// watchSocket wraps the socket that the client gets.
func (c *connection) watchSocket(conn net.Conn) net.Conn {
	s := newSocket(c.root, conn, c.timeout, c.abort)
	c.socket.Store(s)
	return s
}

func (c *connection) subscribe(root context.Context) error {
	sub, err := c.nc.Subscribe(c.inbox+">", c.onAck)
	if err != nil {
		return err
	}
	sub.SetClosedHandler(func(string) { close(c.drained) })
	// Acks are bounded by the messages in flight, and none may be dropped.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	if c.js, err = jetstream.New(c.nc); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(root, connectTimeout)
	defer cancel()
	return c.nc.FlushWithContext(ctx)
}

// Done implements [redial.Conn].
func (c *connection) Done() <-chan struct{} { return c.down }

// Err implements [redial.Conn]: why the connection is down.
func (c *connection) Err() error {
	if c.root.Err() != nil {
		return errClosed
	}
	if cause := c.cause.Load(); cause != nil && *cause != nil {
		return fmt.Errorf("connection to NATS ended: %w", *cause)
	}
	return natsgo.ErrConnectionClosed
}

// Server implements [redial.Conn]. It does not ask the client, whose lock a
// blocked write holds, and which knows no server once the connection has ended.
func (c *connection) Server() string { return c.server }

// Close implements [redial.Conn]. It is quick, because without its socket the
// client waits for nothing.
func (c *connection) Close() {
	c.abort(natsgo.ErrConnectionClosed)
	c.nc.Close()
	<-c.down
	<-c.drained
	c.starts.Lock()
	c.ending = true
	c.starts.Unlock()
	c.work.Wait()
}

// abort breaks the connection off, also out of a blocked write. The first cause counts.
func (c *connection) abort(cause error) {
	c.cause.CompareAndSwap(nil, &cause)
	if s := c.socket.Load(); s != nil {
		_ = s.Close()
	}
}

// onClosed is called by the client once, when the connection has ended.
func (c *connection) onClosed(nc *natsgo.Conn) {
	c.abort(nc.LastError())
	close(c.down)
}

// spawn runs f as a goroutine of the connection; false if it has ended.
func (c *connection) spawn(f func()) bool {
	c.starts.Lock()
	defer c.starts.Unlock()
	if c.ending {
		return false
	}
	c.work.Go(f)
	return true
}

// ping asks the account for its JetStream, or, where we may not ask, the server
// for a pong. A call into the client heeds no ctx while another one writes, so
// it runs apart: it ends when that write does, which the socket bounds.
func (c *connection) ping(ctx context.Context) error {
	answer := make(chan error, 1)
	if !c.spawn(func() { answer <- c.askAccount(ctx) }) {
		return c.Err()
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("ping NATS: %w", ctx.Err())
	}
}

func (c *connection) askAccount(ctx context.Context) error {
	if !c.denied.api.Load() {
		_, err := c.js.AccountInfo(ctx)
		if err == nil || !c.denied.api.Load() {
			return err
		}
	}
	return c.nc.FlushWithContext(ctx)
}
