package nats

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"time"
)

const (
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 2 * time.Second
)

// link returns the live connection, or dials one and waits for it until ctx
// ends. Between failed attempts it answers with the last error at once, unless now is set.
func (s *Sink) link(ctx context.Context, now bool) (*link, error) {
	for {
		s.mu.Lock()
		switch {
		case s.closed:
			s.mu.Unlock()
			return nil, errClosed
		case ctx.Err() != nil:
			s.mu.Unlock()
			return nil, fmt.Errorf("connect to NATS: %w", ctx.Err())
		case s.current != nil && s.current.alive():
			defer s.mu.Unlock()
			return s.current, nil
		case s.dialing == nil && !now && time.Now().Before(s.retryAt):
			defer s.mu.Unlock()
			return nil, s.dialErr
		case s.dialing == nil:
			s.dialing = make(chan struct{})
			go s.dial(s.dialing)
		}
		dialing := s.dialing
		s.mu.Unlock()
		select {
		case <-dialing:
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to NATS: %w", ctx.Err())
		}
		if err := s.lastDialError(); err != nil {
			return nil, err
		}
		now = false
	}
}

func (s *Sink) lastDialError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	return s.dialErr
}

// dial makes one attempt at each server. Whoever closes the sink waits for it.
func (s *Sink) dial(done chan struct{}) {
	defer close(done)
	l, err := s.tryServers()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialing, s.dialErr = nil, err
	if err == nil {
		s.current, s.failed = l, 0
		s.logger.Info("connected to NATS", "event", "sink_connected", "server", l.nc.ConnectedUrlRedacted())
		return
	}
	if s.failed++; s.failed == 1 && !s.closed {
		s.logger.Warn("cannot connect to NATS", "event", "sink_connect_failed", "err", err)
	}
	pause := min(backoffFirst<<min(s.failed-1, 10), backoffMost)
	s.retryAt = time.Now().Add(pause*4/5 + rand.N(pause*2/5))
}

// tryServers tries all servers, beginning with any of them.
func (s *Sink) tryServers() (*link, error) {
	servers := s.config.servers()
	var errs []error
	for _, i := range rand.Perm(len(servers)) {
		l, err := openLink(s.root, &s.config, servers[i], s.logger)
		if err == nil {
			return l, nil
		}
		if len(servers) > 1 {
			err = fmt.Errorf("%s: %w", host(servers[i]), err)
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// host is a server's URL without the login.
func host(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return ""
	}
	return u.Host
}

// dialer gives the client sockets that end with root and with the link.
type dialer struct {
	root context.Context //nolint:containedctx // the client's interface passes none
	link *link
	err  error
}

// Dial implements the client's CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(d.root, network, address)
	if err != nil {
		d.err = err
		return nil, err
	}
	s := &socket{Conn: conn}
	s.stop = context.AfterFunc(d.root, func() { _ = conn.Close() })
	d.link.socket.Store(s)
	return s, nil
}

// socket closes itself when a write fails. The client would otherwise drop
// what it could not write and go on with what comes after it.
type socket struct {
	net.Conn
	stop func() bool
}

func (s *socket) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	if err != nil {
		_ = s.Close()
	}
	return n, err
}

// Close implements [net.Conn].
func (s *socket) Close() error {
	s.stop()
	return s.Conn.Close()
}
