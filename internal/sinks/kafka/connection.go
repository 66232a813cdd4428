package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/metadata"
)

const (
	// connectTimeout limits opening a connection: TCP, TLS, versions and login.
	connectTimeout = 5 * time.Second
	// askTimeout is how long one broker has to answer for its topics, or to a ping.
	askTimeout = 2 * time.Second
)

// connectTimeout and askTimeout leave time in the publish timeout to find out that
// a broker is gone, and to ask another one where the partition is now.
func (c *Config) connectTimeout() time.Duration { return min(connectTimeout, c.PublishTimeout/2) }
func (c *Config) askTimeout() time.Duration     { return min(askTimeout, c.PublishTimeout/4) }

// opener opens connections.
type opener struct {
	config Config
	logger *slog.Logger
	dial   func(ctx context.Context, address string) (net.Conn, error)
}

func newOpener(config Config, logger *slog.Logger) *opener {
	var dialer net.Dialer
	return &opener{config: config, logger: logger, dial: func(ctx context.Context, address string) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", address)
	}}
}

// open connects to a broker and logs in. Every error is a [notStoredError].
func (o *opener) open(ctx context.Context, address string) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, o.config.connectTimeout())
	defer cancel()
	tcp, err := o.dial(ctx, address)
	if err != nil {
		return nil, &notStoredError{fmt.Errorf("connect to kafka broker: %w", err)}
	}
	release := closeAtEnd(ctx, tcp)
	conn, err := o.introduce(ctx, newSocket(tcp, o.config.PublishTimeout), address)
	if !release() {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		_ = tcp.Close()
		return nil, &notStoredError{fmt.Errorf("open connection to kafka broker %s: %w", address, err)}
	}
	o.logger.DebugContext(ctx, "kafka connection opened", "event", "sink_connected", "broker", address)
	return conn, nil
}

// introduce does the handshakes on a new socket.
func (o *opener) introduce(ctx context.Context, socket *socket, address string) (*conn, error) {
	var stream net.Conn = socket
	if o.config.TLS != nil {
		secured, err := o.secure(ctx, socket, address)
		if err != nil {
			return nil, err
		}
		stream = secured
	}
	conn := newConn(socket, stream, address, o.config)
	if err := conn.negotiate(); err != nil {
		return nil, asLoginError(err)
	}
	if o.config.SASL == nil {
		return conn, conn.proveAdmitted()
	}
	expires, err := o.config.SASL.login(ctx, conn.protocol)
	if err != nil {
		return nil, asLoginError(fmt.Errorf("log in: %w", err))
	}
	conn.expires = expires
	return conn, nil
}

// secure reads the files again, so that rotated ones are picked up.
func (o *opener) secure(ctx context.Context, socket net.Conn, address string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(address) // New has checked it.
	secured, err := o.config.TLS.Client(ctx, socket, host)
	if err != nil {
		return nil, asLoginError(err)
	}
	return secured, nil
}

// conn is one connection, used by one request at a time. It is the transport
// of kafka-go's client for that request.
type conn struct {
	address  string
	owner    *broker // whose connections it is one of; nil if it is of its own
	socket   *socket // under TLS
	wire     *wire
	protocol *protocol.Conn
	client   *kafka.Client // for all but messages
	expires  time.Time     // of the login; zero means never
	usedAt   time.Time
	broken   bool
	// replicaTimeout is how long the broker may wait for its replicas.
	replicaTimeout time.Duration
}

func newConn(socket *socket, stream net.Conn, address string, config Config) *conn {
	w := &wire{Conn: stream}
	c := &conn{
		address: address, socket: socket, wire: w, protocol: protocol.NewConn(w, config.Name),
		usedAt: time.Now(), replicaTimeout: config.PublishTimeout / 2,
	}
	c.client = &kafka.Client{Addr: kafka.TCP(address), Transport: c, Timeout: config.PublishTimeout}
	return c
}

// negotiate agrees on the versions of the protocol. It also proves that the
// connection is alive.
func (c *conn) negotiate() error {
	answer, err := c.protocol.RoundTrip(&apiversions.Request{})
	if err != nil {
		return err
	}
	response, ok := answer.(*apiversions.Response)
	if !ok {
		return fmt.Errorf("negotiate versions: unexpected answer %T", answer)
	}
	if response.ErrorCode != 0 {
		return kafka.Error(response.ErrorCode)
	}
	versions := make(map[protocol.ApiKey]int16, len(response.ApiKeys))
	for _, key := range response.ApiKeys {
		api := protocol.ApiKey(key.ApiKey)
		versions[api] = api.SelectVersion(key.MinVersion, key.MaxVersion)
	}
	c.protocol.SetVersions(versions)
	return nil
}

var errNoLogin = errors.New("the broker tells its versions and hangs up at the next request: does it demand a login (sasl)?")

// proveAdmitted asks about no topic. A broker that demands a login tells its versions
// without one, so that they prove nothing; it hangs up at any other request.
func (c *conn) proveAdmitted() error {
	_, err := c.protocol.RoundTrip(&metadata.Request{TopicNames: []string{}})
	if isNetwork(err) && !isTimeout(err) {
		return &loginError{fmt.Errorf("%w: %w", errNoLogin, err)}
	}
	return err
}

// RoundTrip implements [kafka.RoundTripper] on this very connection. An error
// is a [notStoredError] where the broker cannot have got the whole request.
func (c *conn) RoundTrip(ctx context.Context, _ net.Addr, request kafka.Request) (kafka.Response, error) {
	c.wire.begin()
	release := closeAtEnd(ctx, c.socket)
	response, err := c.protocol.RoundTrip(request)
	ended := !release()
	if err != nil && ended {
		err = errors.Join(ctx.Err(), err)
	}
	c.broken = c.broken || ended || err != nil
	c.usedAt = time.Now()
	if err != nil && !c.wire.complete() {
		return nil, &notStoredError{err}
	}
	return response, err
}

// alive asks the broker for a sign of life.
func (c *conn) alive(ctx context.Context) bool {
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := c.RoundTrip(ctx, nil, &apiversions.Request{})
	return err == nil && !c.broken
}

func (c *conn) expired(now time.Time) bool {
	return !c.expires.IsZero() && now.After(c.expires)
}

// close ends the connection, without TLS' farewell where that might not get
// through. There is nothing to do about an error.
func (c *conn) close() {
	if c.broken {
		_ = c.socket.Close()
		return
	}
	_ = c.wire.Close()
}

// closeAtEnd closes a connection when ctx ends, so that reads and writes fail. The
// function that it returns undoes that, and reports false if it was too late.
func closeAtEnd(ctx context.Context, connection net.Conn) (release func() bool) {
	return context.AfterFunc(ctx, func() { _ = connection.Close() })
}

// answerMost bounds an answer, in bytes. What no Kafka says begins with another size.
const answerMost = 64 << 20

var errNotKafka = errors.New("what listens there does not answer as Kafka does: is it the right port, and does it want TLS?")

// wire records how many bytes of a request were written.
type wire struct {
	net.Conn
	// encoded, if not nil, is called before the first byte leaves: kafka-go
	// encodes a whole request before it writes, so the messages are not needed after.
	encoded       func()
	wrote, failed bool
	isAsked       bool // the next that is read is an answer's size
}

func (w *wire) begin() { w.wrote, w.failed = false, false }

// complete reports whether the whole request may have left. A request of which
// a write failed lacks its end, so that the broker throws it away.
func (w *wire) complete() bool { return w.wrote && !w.failed }

func (w *wire) Write(b []byte) (int, error) {
	if w.encoded != nil {
		w.encoded()
		w.encoded = nil
	}
	w.wrote, w.isAsked = true, true
	n, err := w.Conn.Write(b)
	if err != nil {
		w.failed = true
	}
	return n, err
}

// Read refuses an answer that is too long to be Kafka's. kafka-go would believe its size, and take
// so much memory or panic, and the bridge would end.
func (w *wire) Read(b []byte) (int, error) {
	if !w.isAsked {
		return w.Conn.Read(b)
	}
	w.isAsked = false
	n, err := io.ReadAtLeast(w.Conn, b, 4)
	if err == nil && binary.BigEndian.Uint32(b) > answerMost {
		err = errNotKafka
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}
