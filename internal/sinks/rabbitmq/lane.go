package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	backoffInitial = 100 * time.Millisecond
	backoffMax     = 3 * time.Second
	// stableAfter is how old a connection must be to count as a success.
	stableAfter = 5 * time.Second
)

// lane is one of the sink's connections: the session in use, and how to get
// the next one. While it backs off, calls fail at once with the last error.
type lane struct {
	sink   *Sink
	number int

	mu       sync.Mutex
	session  *session // nil while not connected
	dialling *attempt // nil while nobody dials
	next     int      // the endpoint to try first
	failures int      // in a row
	retryAt  time.Time
	lastErr  error
	saidDown bool
}

// attempt is one round over the endpoints that several callers wait for.
type attempt struct {
	done    chan struct{}
	session *session
	err     error
}

func (l *lane) connected() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session != nil && !l.session.conn.IsClosed()
}

// connect returns the session, after dialling if there is none.
func (l *lane) connect(ctx context.Context) (*session, error) {
	if ctx.Err() != nil {
		return nil, endOf(ctx)
	}
	a, s, err := l.current()
	if s != nil || err != nil {
		return s, err
	}
	select {
	case <-a.done:
		return a.session, a.err
	case <-ctx.Done():
		return nil, endOf(ctx)
	}
}

// current returns the session, or the attempt that is under way, or why there
// is neither.
func (l *lane) current() (*attempt, *session, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.sink.root.Err() != nil:
		return nil, nil, errClosed
	case l.session != nil && !l.session.conn.IsClosed():
		return nil, l.session, nil
	case l.dialling != nil:
		return l.dialling, nil, nil
	case time.Now().Before(l.retryAt):
		return nil, nil, l.lastErr
	}
	a := &attempt{done: make(chan struct{})}
	l.dialling = a
	l.sink.work.Go(func() { l.dial(a) })
	return a, nil, nil
}

// dial tries each endpoint once.
func (l *lane) dial(a *attempt) {
	defer close(a.done)
	l.mu.Lock()
	next := l.next
	l.mu.Unlock()
	endpoints := l.sink.endpoints
	for i := range endpoints {
		e := endpoints[(next+i)%len(endpoints)]
		if a.session, a.err = dial(l.sink.root, l, e); a.err == nil {
			l.up(a.session, (next+i)%len(endpoints))
			return
		}
		a.err = fmt.Errorf("connect to %s: %w", e.host, a.err)
		if l.sink.root.Err() != nil {
			a.err = errClosed
			break
		}
	}
	l.down(a.err, (next+1)%len(endpoints))
}

func (l *lane) up(s *session, endpoint int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dialling, l.session, l.next, l.saidDown = nil, s, endpoint, false
	l.log(slog.LevelInfo, "sink_connected", "rabbitmq connected", s.host)
	l.sink.work.Go(s.watch)
	if l.sink.root.Err() != nil {
		// Close came between the dial and now, and saw no session.
		l.sink.work.Go(s.close)
	}
}

func (l *lane) down(err error, next int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dialling, l.next = nil, next
	if l.backOff(err); !l.saidDown && !errors.Is(err, errClosed) {
		l.saidDown = true
		l.log(slog.LevelWarn, "sink_connect_failed", "rabbitmq cannot be connected", "", slog.Any("err", err))
	}
}

// backOff is called with l.mu held. A cluster's node that lets us in and drops
// us again must not be dialled in a loop either.
func (l *lane) backOff(err error) {
	wait := min(backoffMax, backoffInitial<<min(l.failures, 10))
	l.failures++
	l.lastErr = err
	l.retryAt = time.Now().Add(wait/2 + rand.N(wait/2))
}

// lost takes leave of a session whose connection has ended.
func (l *lane) lost(s *session, exception *amqp.Error) {
	cause := errLost
	if exception != nil {
		cause = fmt.Errorf("%w: %w", errLost, exception)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == s {
		l.session = nil
	}
	if time.Since(s.born) >= stableAfter {
		l.failures = 0
	}
	if l.sink.root.Err() != nil {
		return
	}
	l.backOff(cause)
	if !l.saidDown {
		l.saidDown = true
		l.log(slog.LevelWarn, "sink_disconnected", "rabbitmq connection lost", s.host, slog.Any("err", cause))
	}
}

// close ends the session, once the sink is closed.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != nil {
		l.sink.work.Go(l.session.close)
	}
}

func (l *lane) log(level slog.Level, event, text, host string, attributes ...slog.Attr) {
	attributes = append(attributes, slog.String("event", event), slog.Int("connection", l.number))
	if host != "" {
		attributes = append(attributes, slog.String("host", host))
	}
	l.sink.logger.LogAttrs(l.sink.root, level, text, attributes...)
}

// publish publishes one lane's part of a batch.
func (l *lane) publish(ctx context.Context, channel int, part *part) {
	s, err := l.connect(ctx)
	if err != nil {
		part.fill(classify(notHanded, err))
		return
	}
	s.publisher(channel).publish(ctx, part)
}
