package rabbitmq

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// heartbeat is what we ask the broker for. It sends one each half of it, and
	// the driver gives a silent connection up after one and a half, before a
	// publish times out.
	heartbeat = 6 * time.Second
	// dialTimeout limits one connect, TLS and login included. RabbitMQ takes its
	// time to refuse a login.
	dialTimeout = 8 * time.Second
	// closeTimeout is how long the broker may take to answer a close.
	closeTimeout = time.Second
)

// session is one connection of a lane, until it is lost.
type session struct {
	lane *lane
	host string
	conn *amqp.Connection
	wire *wire
	born time.Time

	blocks chan amqp.Blocking
	closes chan *amqp.Error

	mu         sync.Mutex
	publishers map[int]*publisher
}

// dial connects to a node and logs in. It ends with ctx.
func dial(ctx context.Context, l *lane, e endpoint) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	s := &session{lane: l, host: e.host, publishers: map[int]*publisher{}}
	login, err := l.sink.config.login(e)
	if err != nil {
		return nil, err
	}
	config := amqp.Config{
		SASL:      []amqp.Authentication{login},
		Heartbeat: heartbeat,
		Properties: amqp.Table{
			"product":         "delaybridge",
			"connection_name": "delaybridge " + l.sink.config.Name,
		},
	}
	if e.secure {
		if config.TLSClientConfig, err = l.sink.config.tlsConfig(); err != nil {
			return nil, &loginError{err}
		}
	}
	// The driver's handshake knows no context.
	hang := func() bool { return true }
	config.Dial = func(network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		s.wire = newWire(conn)
		l.sink.work.Go(s.wire.run)
		hang = context.AfterFunc(ctx, func() { _ = s.wire.Close() })
		return s.wire, nil
	}
	s.conn, err = amqp.DialConfig(e.url, config)
	if inTime := hang(); err == nil && !inTime {
		err = ctx.Err()
	}
	if err != nil {
		if s.wire != nil {
			_ = s.wire.Close()
		}
		return nil, err
	}
	s.born = time.Now()
	s.closes = s.conn.NotifyClose(make(chan *amqp.Error, 1))
	s.blocks = s.conn.NotifyBlocked(make(chan amqp.Blocking, 16))
	return s, nil
}

// watch follows the connection until it is lost. The lane owns it.
func (s *session) watch() {
	for {
		select {
		case block, ok := <-s.blocks:
			if !ok {
				s.blocks = nil
				continue
			}
			s.wire.isBlocked.Store(block.Active)
			if block.Active {
				s.lane.log(slog.LevelWarn, "sink_blocked", "rabbitmq blocks publishers", s.host, slog.String("reason", block.Reason))
			} else {
				s.lane.log(slog.LevelInfo, "sink_unblocked", "rabbitmq no longer blocks publishers", s.host)
			}
		case err := <-s.closes:
			s.wire.end(errLost)
			s.lane.lost(s, err)
			return
		}
	}
}

// publisher returns the publisher for a channel number.
func (s *session) publisher(channel int) *publisher {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.publishers[channel]
	if p == nil {
		p = newPublisher(s)
		s.publishers[channel] = p
	}
	return p
}

// open opens a channel. The driver's call has no limit of its own: if ctx ends
// first, the channel is closed when it comes.
func (s *session) open(ctx context.Context) (*link, error) {
	if s.wire.isBlocked.Load() {
		return nil, errBlocked
	}
	var opened *link
	err := s.call(ctx, func() (err error) {
		opened, err = newLink(s)
		return err
	}, func() {
		if opened != nil {
			_ = opened.channel.Close()
		}
	})
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// call runs a driver's call that ends at the latest with the connection. If
// ctx ends before it, call returns, and abandoned runs after it.
func (s *session) call(ctx context.Context, f func() error, abandoned func()) error {
	done := make(chan error, 1)
	var decided atomic.Bool // whoever sets it first decides whether f came in time
	s.lane.sink.work.Go(func() {
		err := f()
		if decided.CompareAndSwap(false, true) {
			done <- err
		} else {
			abandoned()
		}
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		if decided.CompareAndSwap(false, true) {
			return endOf(ctx)
		}
		return <-done
	}
}

// ping makes the broker answer.
func (s *session) ping(ctx context.Context) error {
	l, err := s.open(ctx)
	if err != nil {
		return err
	}
	s.goClose(l.channel)
	return nil
}

// goClose closes a channel without waiting for the broker's answer, which
// comes or the connection ends. The caller is counted in the sink's work.
func (s *session) goClose(channel *amqp.Channel) {
	s.lane.sink.work.Go(func() { _ = channel.Close() })
}

// close says goodbye if the broker listens, and ends the connection.
func (s *session) close() {
	deadline := time.Now().Add(closeTimeout)
	cut := time.AfterFunc(closeTimeout, func() { _ = s.wire.Close() })
	_ = s.conn.CloseDeadline(deadline) // It is gone in any case.
	cut.Stop()
	_ = s.wire.Close()
}
