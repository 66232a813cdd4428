package nats

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"

	natsgo "github.com/nats-io/nats.go"
)

// Connect logs in at one of the servers, for consumers. The connection does not
// reconnect: closed is called once when it has ended. The caller closes it.
func (c Config) Connect(ctx context.Context, closed func()) (*natsgo.Conn, error) {
	if err := c.verify(); err != nil {
		return nil, err
	}
	return firstOf(c.servers(), func(server string) (*natsgo.Conn, error) {
		return c.connect(&dialer{ctx: ctx}, server, func(options *natsgo.Options) {
			options.ClosedCB = func(*natsgo.Conn) { closed() }
			options.AsyncErrorCB = func(*natsgo.Conn, *natsgo.Subscription, error) {} // Calls fail by themselves.
		})
	})
}

// dial makes one attempt at each server, beginning with any of them.
func (s *Sink) dial(root context.Context) (*connection, error) {
	return firstOf(s.config.servers(), func(server string) (*connection, error) {
		return openConnection(root, &s.config, server, s.logger)
	})
}

// firstOf opens what the first of the servers gives, in any order. A single server is not named in errors.
func firstOf[T any](servers []string, open func(server string) (T, error)) (opened T, err error) {
	var errs []error
	for _, i := range rand.Perm(len(servers)) {
		if opened, err = open(servers[i]); err == nil {
			return opened, nil
		}
		if len(servers) > 1 {
			err = fmt.Errorf("%s: %w", host(servers[i]), err)
		}
		errs = append(errs, err)
	}
	return opened, errors.Join(errs...)
}

// host is a server's URL without the login.
func host(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return ""
	}
	return u.Host
}

// dialer gives the client sockets, whose dialling ends with ctx.
type dialer struct {
	ctx  context.Context              //nolint:containedctx // the client's interface passes none
	wrap func(conn net.Conn) net.Conn // what the client gets of a socket; nil is the socket
	err  error                        // of the last time
}

// Dial implements the client's CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(d.ctx, network, address)
	if d.err = err; err != nil {
		return nil, err
	}
	if d.wrap != nil {
		conn = d.wrap(conn)
	}
	return conn, nil
}
