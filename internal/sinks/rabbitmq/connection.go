package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// closeTimeout is how long the broker may take to answer a close.
const closeTimeout = time.Second

// connection is one connection to the broker, from login to its end, with the
// channels on it. It is a [redial.Conn]. Its goroutines are watch, the wire's
// and one for each channel; Close waits for all.
type connection struct {
	config Config
	number int // among those of the sink
	host   string
	logger *slog.Logger
	amqp   *amqp.Connection
	wire   *wire
	mux    *mux
	limit  *channelLimit
	// lessons is how often the limit had changed when the connection began.
	lessons int
	blocks  chan amqp.Blocking
	closes  chan *amqp.Error
	load    atomic.Int64 // messages of calls that use it
	work    sync.WaitGroup

	mu       sync.Mutex
	cause    error // why it ends, see setCause; not nil once done is closed
	done     chan struct{}
	channels channelTable

	confirmed position
}

// position is how far into the bytes of a connection the broker has read for
// certain: it has answered a message that began there.
type position struct {
	mu      sync.Mutex
	reached uint64
	at      time.Time // when that was last moved
}

// dial connects to a node and logs in, as the connection of that number. It ends with ctx.
func dial(ctx context.Context, config Config, e endpoint, number int, limit *channelLimit, logger *slog.Logger) (*connection, error) {
	c := &connection{
		config: config, number: number, host: e.host, limit: limit, lessons: limit.begin(time.Now()), logger: logger,
		done: make(chan struct{}), channels: newChannelTable(),
	}
	c.channels.lessons = c.lessons
	var err error
	c.amqp, err = config.dialNode(ctx, e, func(conn net.Conn) net.Conn {
		c.wire = newWire(conn, config.PublishTimeout)
		c.work.Go(c.wire.run)
		return c.wire
	}, func(conn net.Conn) net.Conn {
		c.mux = newMux(conn, limit)
		return c.mux
	})
	if err != nil {
		c.work.Wait()
		return nil, err
	}
	c.mux.begin(c.amqp.Config.ChannelMax, heartbeatsMissed*c.amqp.Config.Heartbeat/2)
	c.closes = c.amqp.NotifyClose(make(chan *amqp.Error, 1))
	c.blocks = c.amqp.NotifyBlocked(make(chan amqp.Blocking, 16))
	c.work.Go(c.watch)
	return c, nil
}

// watch follows the connection until it is lost.
func (c *connection) watch() {
	for {
		select {
		case block, ok := <-c.blocks:
			if !ok {
				c.blocks = nil
				continue
			}
			c.setBlocked(block)
		case exception := <-c.closes:
			cause := errLost
			if exception != nil {
				cause = fmt.Errorf("%w: %w", errLost, exception)
			}
			c.wire.end(errLost)
			if isLimit(exception) && c.mux.isAsking() {
				cause = fmt.Errorf("%w: %w: %w", errLost, errTooMany, exception)
				most := c.limit.refused(c.lessons, time.Now())
				c.logger.Warn("rabbitmq allows our user no more channels", "event", "sink_channels", "server", c.host, "channels", most)
			}
			c.mux.end()
			c.setCause(cause)
			close(c.done)
			return
		}
	}
}

// setCause notes why the connection ends, which is the first thing that ends it.
func (c *connection) setCause(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cause == nil {
		c.cause = cause
	}
}

func (c *connection) setBlocked(block amqp.Blocking) {
	c.wire.isBlocked.Store(block.Active)
	if !block.Active {
		c.logger.Info("rabbitmq no longer blocks publishers", "event", "sink_unblocked", "server", c.host)
		return
	}
	c.logger.Warn("rabbitmq blocks publishers", "event", "sink_blocked", "server", c.host, "reason", block.Reason)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, channel := range c.channels.all {
		channel.rouse()
	}
}

// Done is closed when the connection is lost.
func (c *connection) Done() <-chan struct{} { return c.done }

// Server is the node's host and port.
func (c *connection) Server() string { return c.host }

// Err is why the connection was lost, or that we close it; nil while neither is so.
func (c *connection) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// refusal is why nothing can be handed over now; nil if it can.
func (c *connection) refusal() error {
	switch {
	case c.amqp.IsClosed():
		return c.loss()
	case c.wire.isBlocked.Load():
		return errBlocked
	}
	return nil
}

// loss is why a connection carries nothing any more, also before it is known more exactly.
func (c *connection) loss() error {
	if err := c.Err(); err != nil {
		return err
	}
	return errLost
}

// ping makes the broker open a channel. If we may have none for that, it is the
// heartbeats that tell.
func (c *connection) ping(ctx context.Context) error {
	if err := c.refusal(); err != nil || !c.limit.allowsPing() {
		return err
	}
	answered := make(chan struct{}, 1)
	channel, err := c.mux.open(func() { answered <- struct{}{} }) // Called once, until its event is taken.
	switch {
	case errors.Is(err, errNoNumber):
		return nil
	case err != nil:
		return err
	}
	defer channel.close()
	select {
	case <-answered:
		return channel.isOpened()
	case <-c.done:
		return c.Err()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close says goodbye if the broker listens, and ends the connection.
func (c *connection) Close() {
	c.setCause(errClosed)
	cut := time.AfterFunc(closeTimeout, func() { _ = c.wire.Close() })
	err := c.amqp.CloseDeadline(time.Now().Add(closeTimeout))
	cut.Stop()
	_ = c.wire.Close()
	if err != nil && !errors.Is(err, amqp.ErrClosed) {
		c.logger.Debug("rabbitmq did not answer a close", "server", c.host, "err", err)
	}
	c.work.Wait()
}

// advance notes that the broker answered a message that began at start.
func (p *position) advance(start uint64, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if start > p.reached {
		p.reached, p.at = start, now
	}
}

// before returns when the broker last came nearer to a message that begins at
// start; zero if it has come to it.
func (p *position) before(start uint64) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reached >= start {
		return time.Time{}
	}
	return p.at
}
