package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/sinks/redial"
)

const (
	backoffInitial = 100 * time.Millisecond
	backoffLimit   = 3 * time.Second
	// stableAfter is how old a connection must be to count as a success.
	stableAfter = 5 * time.Second
)

// pool is the sink's connections. A call uses one of them: which one does not
// matter to the order of a Key, since only one message of it is under way. So a
// connection that is lost or slow is passed over while there are others.
type pool struct {
	places []*place
	limit  *channelLimit
	turn   atomic.Uint64
}

// place is where one connection is, or will be.
type place struct {
	*redial.Redialer[*connection]
	next int // the endpoint to try first; dial's own
}

func newPool(config Config, endpoints []endpoint, logger *slog.Logger) *pool {
	p := &pool{limit: &channelLimit{connections: config.Connections}}
	for number := range config.Connections {
		place := &place{next: number}
		logger := logger.With("connection", number)
		place.Redialer = redial.New(redial.Config[*connection]{
			Broker:  "RabbitMQ",
			Initial: backoffInitial, Limit: backoffLimit, Stable: stableAfter,
			Logger: logger,
			Dial: func(ctx context.Context) (*connection, error) {
				return place.dial(ctx, endpoints, func(e endpoint) (*connection, error) {
					return dial(ctx, config, e, number, p.limit, logger)
				})
			},
		})
		p.places = append(p.places, place)
	}
	return p
}

// dial tries each endpoint once, the one that worked last first.
func (p *place) dial(ctx context.Context, endpoints []endpoint, dial func(endpoint) (*connection, error)) (*connection, error) {
	var err error
	for range endpoints {
		e := endpoints[p.next%len(endpoints)]
		var connection *connection
		if connection, err = dial(e); err == nil {
			return connection, nil
		}
		err = fmt.Errorf("connect to %s: %w", e.host, err)
		p.next++
		if ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

// get returns the connection with the least to do, and has those that are
// missing dialled. Only if there is none it waits for one.
func (p *pool) get(ctx context.Context) (*connection, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	best := p.live(true)
	if best == nil {
		places := p.usable()
		place := places[p.turn.Add(1)%uint64(len(places))]
		connection, err := place.Get(ctx, false)
		if err == nil {
			best = connection
		} else if best = p.live(false); best == nil {
			return nil, err
		}
	}
	return best, best.refusal()
}

// live returns the connection with the least to do, nil if there is none;
// with start, it has those that are missing dialled, without waiting for them.
// If one is blocked all are: the alarm is the whole broker's.
func (p *pool) live(start bool) *connection {
	var best *connection
	usable := len(p.usable())
	for i, place := range p.places {
		connection, ok := place.Current()
		if ok {
			connection.fit()
		}
		switch {
		case i >= usable:
		case !ok && start:
			place.Start()
		case !ok:
		case connection.wire.isBlocked.Load():
			return connection
		case best == nil || connection.load.Load() < best.load.Load():
			best = connection
		}
	}
	return best
}

// usable are the places whose connections may have channels: all, unless the broker
// allows fewer channels than there are connections.
func (p *pool) usable() []*place {
	for number := range p.places {
		if share, isLimited := p.limit.share(number); isLimited && share == 0 {
			return p.places[:number]
		}
	}
	return p.places
}

// ping asks the broker over the first connection that there is.
func (p *pool) ping(ctx context.Context) error {
	connection := p.live(false)
	if connection == nil {
		var err error
		if connection, err = p.places[0].Get(ctx, true); err != nil {
			return err
		}
	}
	return connection.ping(ctx)
}

// close ends all connections, side by side.
func (p *pool) close(ctx context.Context) error {
	errs := make([]error, len(p.places))
	var closing sync.WaitGroup
	for i, place := range p.places {
		closing.Go(func() { errs[i] = place.Close(ctx) })
	}
	closing.Wait()
	return errors.Join(errs...)
}
