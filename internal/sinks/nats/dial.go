package nats

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
)

// dial makes one attempt at each server, beginning with any of them.
func (s *Sink) dial(root context.Context) (*connection, error) {
	servers := s.config.servers()
	var errs []error
	for _, i := range rand.Perm(len(servers)) {
		l, err := openConnection(root, &s.config, servers[i], s.logger)
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

// dialer gives the client sockets that end with root and with the connection.
type dialer struct {
	root       context.Context //nolint:containedctx // the client's interface passes none
	connection *connection
	err        error
}

// Dial implements the client's CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(d.root, network, address)
	if err != nil {
		d.err = err
		return nil, err
	}
	s := newSocket(d.root, conn, d.connection.timeout, d.connection.abort)
	d.connection.socket.Store(s)
	return s, nil
}
