package nats

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// link is one connection, from login to its end. Its goroutines are the
// client's and those of spawn; Close waits for all.
type link struct {
	root    context.Context //nolint:containedctx // the sink's life
	nc      *natsgo.Conn
	js      jetstream.JetStream
	logger  *slog.Logger
	timeout time.Duration // for a publish
	socket  atomic.Pointer[socket]
	cause   atomic.Pointer[error] // why we broke it off, or it ended
	down    chan struct{}         // closed when the connection has ended
	acks    acks
	pace    pace
	asked   questions
	denied  denials

	mu     sync.Mutex
	ending bool // spawn starts nothing more
	work   sync.WaitGroup
}

// openLink connects to one server and subscribes to the acks.
func openLink(root context.Context, config *Config, server string, logger *slog.Logger) (*link, error) {
	l := &link{root: root, logger: logger, timeout: config.PublishTimeout, down: make(chan struct{})}
	l.acks = newAcks()
	l.pace = newPace()
	l.asked = newQuestions()
	l.denied = newDenials()
	nc, err := config.connect(root, server, l)
	if err != nil {
		if s := l.socket.Load(); s != nil {
			_ = s.Close()
		}
		return nil, err
	}
	l.nc = nc
	if err := l.subscribe(root); err != nil {
		l.abort(err)
		nc.Close()
		<-l.down
		return nil, fmt.Errorf("subscribe to acks: %w", err)
	}
	return l, nil
}

func (l *link) subscribe(root context.Context) error {
	sub, err := l.nc.Subscribe(l.acks.prefix+">", l.onAck)
	if err != nil {
		return err
	}
	sub.SetClosedHandler(func(string) { close(l.acks.drained) })
	// Acks are bounded by the messages in flight, and none may be dropped.
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	if l.js, err = jetstream.New(l.nc); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(root, connectTimeout)
	defer cancel()
	return l.nc.FlushWithContext(ctx)
}

// Done implements [redial.Conn].
func (l *link) Done() <-chan struct{} { return l.down }

// Err implements [redial.Conn]: why the connection is down.
func (l *link) Err() error {
	if l.root.Err() != nil {
		return errClosed
	}
	if cause := l.cause.Load(); cause != nil && *cause != nil {
		return fmt.Errorf("connection to NATS ended: %w", *cause)
	}
	return natsgo.ErrConnectionClosed
}

// Server implements [redial.Conn].
func (l *link) Server() string { return l.nc.ConnectedUrlRedacted() }

// Close implements [redial.Conn]. It is quick: without its socket the client
// waits for nothing.
func (l *link) Close() {
	l.abort(natsgo.ErrConnectionClosed)
	l.nc.Close()
	<-l.down
	<-l.acks.drained
	l.mu.Lock()
	l.ending = true
	l.mu.Unlock()
	l.work.Wait()
}

// abort breaks the connection off, also out of a blocked write. The first cause counts.
func (l *link) abort(cause error) {
	l.cause.CompareAndSwap(nil, &cause)
	if s := l.socket.Load(); s != nil {
		_ = s.Close()
	}
}

// onClosed is called by the client once, when the connection has ended.
func (l *link) onClosed(nc *natsgo.Conn) {
	l.abort(nc.LastError())
	close(l.down)
}

// spawn runs f as a goroutine of the link; false where the link has ended.
func (l *link) spawn(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ending {
		return false
	}
	l.work.Go(f)
	return true
}

// ping asks the account for its JetStream, or, where we may not ask, the server
// for a pong. A call into the client heeds no ctx while another one writes, so
// it runs apart: it ends when that write does, which the socket bounds.
func (l *link) ping(ctx context.Context) error {
	answer := make(chan error, 1)
	if !l.spawn(func() { answer <- l.askAccount(ctx) }) {
		return l.Err()
	}
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("ping NATS: %w", ctx.Err())
	}
}

func (l *link) askAccount(ctx context.Context) error {
	if !l.denied.api.Load() {
		_, err := l.js.AccountInfo(ctx)
		if err == nil || !l.denied.api.Load() {
			return err
		}
	}
	return l.nc.FlushWithContext(ctx)
}
