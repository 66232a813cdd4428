package nats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// grace is how long a call may still be in the client after its ctx ended,
	// before the connection counts as stuck in a write and is broken off.
	grace = 250 * time.Millisecond
	// apiTimeout bounds a question to JetStream's API.
	apiTimeout = 2 * time.Second
)

// link is one connection, from login to its end. The acks of all publishes
// come back on one inbox; their subjects name the flight and the message.
type link struct {
	root      context.Context //nolint:containedctx // the sink's life
	nc        *natsgo.Conn
	js        jetstream.JetStream
	logger    *slog.Logger
	socket    atomic.Pointer[socket]
	prefix    string        // of the subjects for acks
	down      chan struct{} // closed when the connection has ended
	drained   chan struct{} // closed when no ack can come any more
	apiDenied atomic.Bool   // we may not ask JetStream's API

	load    atomic.Int64 // flights that share the connection
	mu      sync.Mutex
	flights map[uint64]*flight
	last    uint64
	denied  map[string]bool // subjects that were logged
}

// openLink connects to one server and subscribes to the acks.
func openLink(root context.Context, config *Config, server string, logger *slog.Logger) (*link, error) {
	l := &link{
		root: root, logger: logger, prefix: natsgo.NewInbox() + ".",
		down: make(chan struct{}), drained: make(chan struct{}),
		flights: map[uint64]*flight{}, denied: map[string]bool{},
	}
	nc, err := config.connect(root, server, l)
	if err != nil {
		if s := l.socket.Load(); s != nil {
			_ = s.Close()
		}
		return nil, err
	}
	l.nc = nc
	if err := l.subscribe(root); err != nil {
		l.abort()
		nc.Close()
		<-l.down
		return nil, fmt.Errorf("subscribe to acks: %w", err)
	}
	return l, nil
}

func (l *link) subscribe(root context.Context) error {
	sub, err := l.nc.Subscribe(l.prefix+">", l.onAck)
	if err != nil {
		return err
	}
	sub.SetClosedHandler(func(string) { close(l.drained) })
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

func (l *link) alive() bool {
	select {
	case <-l.down:
		return false
	default:
		return true
	}
}

// abort breaks the connection off, also out of a blocked write.
func (l *link) abort() {
	if s := l.socket.Load(); s != nil {
		_ = s.Close()
	}
}

// close ends the connection and waits for its goroutines until ctx ends.
func (l *link) close(ctx context.Context) error {
	l.abort()
	l.nc.Close()
	for _, ended := range []chan struct{}{l.down, l.drained} {
		select {
		case <-ended:
		case <-ctx.Done():
			return fmt.Errorf("close NATS connection: %w", ctx.Err())
		}
	}
	return nil
}

// onClosed is called by the client once, when the connection has ended.
func (l *link) onClosed(nc *natsgo.Conn) {
	if s := l.socket.Load(); s != nil {
		_ = s.Close()
	}
	if l.root.Err() != nil { // By ourselves: what the client says of that is noise.
		l.logger.InfoContext(l.root, "connection to NATS closed", "event", "sink_disconnected")
	} else {
		l.logger.WarnContext(l.root, "connection to NATS ended", "event", "sink_disconnected", "err", nc.LastError())
	}
	close(l.down)
}

// guard watches a call into the client, which heeds no ctx while it writes.
// The call must be released when it is over.
func (l *link) guard(ctx context.Context) (release func()) {
	released, ended := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-released:
		case <-l.down:
		case <-timer.C:
			l.abort()
		}
	})
	return func() {
		close(released)
		if !stop() {
			<-ended
		}
	}
}

// add makes the flight known to onAck and returns the prefix of its subjects.
func (l *link) add(f *flight) (number uint64, prefix string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	l.flights[l.last] = f
	l.load.Store(int64(len(l.flights)))
	return l.last, l.prefix + strconv.FormatUint(l.last, 36) + "."
}

func (l *link) remove(number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.flights, number)
	l.load.Store(int64(len(l.flights)))
}

// onAck hands an answer to its flight. It must not block: all acks wait for it.
func (l *link) onAck(m *natsgo.Msg) {
	flightText, indexText, _ := strings.Cut(m.Subject[len(l.prefix):], ".")
	number, errFlight := strconv.ParseUint(flightText, 36, 64)
	index, errIndex := strconv.Atoi(indexText)
	if errFlight != nil || errIndex != nil {
		return
	}
	l.mu.Lock()
	f := l.flights[number]
	l.mu.Unlock()
	if f != nil { // else it came too late
		f.settle(index, parseAck(m))
	}
}

var deniedSubject = regexp.MustCompile(`(?:Publish|Subscription) to "([^"]*)"`)

// onError hears of errors that belong to no call. The server answers a publish
// that we have no permission for in no other way.
func (l *link) onError(_ *natsgo.Conn, _ *natsgo.Subscription, err error) {
	match := deniedSubject.FindStringSubmatch(fmt.Sprint(err))
	if !errors.Is(err, natsgo.ErrPermissionViolation) || match == nil {
		return
	}
	subject := match[1]
	switch {
	case strings.HasPrefix(subject, l.prefix):
		l.abort() // without acks nothing can work
	case strings.HasPrefix(subject, "$JS.API."):
		l.apiDenied.Store(true)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.flights {
		f.deny(subject, err)
	}
	const logged = 100 // a bound, not a limit that anybody should meet
	if !l.denied[subject] && len(l.denied) < logged {
		l.denied[subject] = true
		l.logger.Warn("NATS denies us a subject", "event", "sink_denied", "topic", subject)
	}
}

// streamExists asks JetStream whether any stream binds the subject.
func (l *link) streamExists(ctx context.Context, subject string) error {
	if l.apiDenied.Load() {
		return jetstream.ErrStreamNotFound // the likelier cause by far
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	defer l.guard(ctx)()
	_, err := l.js.StreamNameBySubject(ctx, subject)
	if err != nil && l.apiDenied.Load() {
		return jetstream.ErrStreamNotFound
	}
	return err
}

// ping asks the account for its JetStream, or, where we may not ask, the server
// for a pong.
func (l *link) ping(ctx context.Context) error {
	defer l.guard(ctx)()
	if !l.apiDenied.Load() {
		_, err := l.js.AccountInfo(ctx)
		if err == nil || !l.apiDenied.Load() {
			return err
		}
	}
	return l.nc.FlushWithContext(ctx)
}
