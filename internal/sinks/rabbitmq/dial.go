package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/delaybridge/delaybridge/internal/tlsclient"
)

const (
	// heartbeat is what we ask the broker for. It sends one each half of it, and
	// the driver gives a silent connection up after one and a half, before a
	// publish times out.
	heartbeat = 6 * time.Second
	// heartbeatsMissed is how many of the broker's may not come.
	heartbeatsMissed = 3
	// dialTimeout limits one connect, TLS and login included. RabbitMQ takes its
	// time to refuse a login.
	dialTimeout = 8 * time.Second
	// consumerWriteTimeout is how long the broker may not take what a consumer writes.
	consumerWriteTimeout = 10 * time.Second
)

// Dial connects to one of the nodes and logs in, for consumers. The connection
// does not recover by itself, and the caller closes it. Its handshake ends with
// ctx, and a write that the broker does not take within 10 s ends it.
func (c Config) Dial(ctx context.Context) (*amqp.Connection, error) {
	c = c.withDefaults()
	endpoints, err := c.check()
	if err != nil {
		return nil, fmt.Errorf("rabbitmq: %w", err)
	}
	var errs []error
	for _, i := range rand.Perm(len(endpoints)) {
		conn, err := c.dialNode(ctx, endpoints[i], func(conn net.Conn) net.Conn { return &boundedWrites{conn} }, nil)
		if err == nil {
			return conn, nil
		}
		errs = append(errs, fmt.Errorf("connect to rabbitmq %s: %w", endpoints[i].host, err))
	}
	return nil, errors.Join(errs...)
}

// dialNode connects to a node and logs in. What the driver writes goes through
// what over makes of the stream, if that is given, then through TLS, and then
// through what under makes of the socket. It ends with ctx, which the driver's
// handshake does not know, and leaves nothing open if it fails.
func (c Config) dialNode(ctx context.Context, e endpoint, under, over func(net.Conn) net.Conn) (*amqp.Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	login, err := c.login(e)
	if err != nil {
		return nil, err
	}
	config := amqp.Config{
		SASL: []amqp.Authentication{login}, Heartbeat: heartbeat, FrameSize: frameMax,
		Properties: amqp.Table{"product": "delaybridge", "connection_name": "delaybridge " + c.Name},
	}
	var socket net.Conn
	var secured *tlsclient.Conn
	hang := func() bool { return true }
	config.Dial = func(network, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, e.host)
		if err != nil {
			return nil, err
		}
		socket = under(conn)
		hang = context.AfterFunc(ctx, func() { _ = conn.Close() })
		stream := socket
		if e.secure {
			if secured, err = c.secure(ctx, e, socket); err != nil {
				return nil, err
			}
			stream = secured
		}
		if over != nil {
			stream = over(stream)
		}
		return stream, nil
	}
	// TLS is ours, so that the driver need not know of it.
	conn, err := amqp.DialConfig(plainURL(e.url), config)
	if inTime := hang(); err == nil && !inTime {
		err = context.Cause(ctx)
	}
	if refusal := secured.Refusal(); err != nil && refusal != nil {
		err = refusal // The driver hides it.
	}
	if err != nil && socket != nil {
		_ = socket.Close()
	}
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// plainURL is the URL without TLS.
func plainURL(url string) string {
	if rest, ok := strings.CutPrefix(url, "amqps:"); ok {
		return "amqp:" + rest
	}
	return url
}

// secure does the TLS handshake. It reads the files again.
func (c Config) secure(ctx context.Context, e endpoint, socket net.Conn) (*tlsclient.Conn, error) {
	var files tlsclient.Files
	if c.TLS != nil {
		files = *c.TLS
	}
	host, _, _ := net.SplitHostPort(e.host) // parse has joined it.
	return files.Client(ctx, socket, host)
}

// boundedWrites ends a write that takes too long: the driver knows no context.
type boundedWrites struct{ net.Conn }

func (b *boundedWrites) Write(p []byte) (int, error) {
	if err := b.SetWriteDeadline(time.Now().Add(consumerWriteTimeout)); err != nil {
		return 0, err
	}
	return b.Conn.Write(p)
}
