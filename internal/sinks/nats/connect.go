package nats

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"

	natsgo "github.com/nats-io/nats.go"
)

// Connect logs in at one of the servers, for consumers. The connection does not
// reconnect: closed is called once when it has ended. The caller closes it.
func (c Config) Connect(ctx context.Context, closed func()) (*natsgo.Conn, error) {
	if err := c.verify(); err != nil {
		return nil, err
	}
	servers := c.servers()
	var errs []error
	for _, i := range rand.Perm(len(servers)) {
		options, err := c.options(servers[i])
		if err != nil {
			return nil, err
		}
		dialer := &contextDialer{ctx: ctx}
		options.CustomDialer = dialer
		options.ClosedCB = func(*natsgo.Conn) { closed() }
		options.AsyncErrorCB = func(*natsgo.Conn, *natsgo.Subscription, error) {} // Calls fail by themselves.
		nc, err := options.Connect()
		if err == nil {
			return nc, nil
		}
		if errors.Is(err, natsgo.ErrNoServers) && dialer.err != nil {
			err = dialer.err // The client hides a refused connection.
		}
		errs = append(errs, fmt.Errorf("connect to NATS %s: %w", host(servers[i]), c.explain(err)))
	}
	return nil, errors.Join(errs...)
}

// contextDialer ends dialling with ctx.
type contextDialer struct {
	ctx context.Context //nolint:containedctx // the client's interface passes none
	err error
}

// Dial implements the client's CustomDialer.
func (d *contextDialer) Dial(network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(d.ctx, network, address)
	d.err = err
	return conn, err
}
