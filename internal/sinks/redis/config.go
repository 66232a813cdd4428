package redis

import (
	"context"
	"fmt"
	"net"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Config says how to publish; where to is the client's.
type Config struct {
	// PublishTimeout is how long a pipeline may make no progress, in being written or in
	// being answered; 0 means DefaultPublishTimeout.
	PublishTimeout time.Duration
}

func (c Config) timeout() (time.Duration, error) {
	switch {
	case c.PublishTimeout < 0:
		return 0, fmt.Errorf("check redis sink: publish_timeout %s: must be positive", c.PublishTimeout)
	case c.PublishTimeout == 0:
		return DefaultPublishTimeout, nil
	default:
		return c.PublishTimeout, nil
	}
}

const (
	// pipelinesMost bounds the pipelines to each node at a time: the senders of several streams
	// meet at a node of a Cluster.
	pipelinesMost = 16
	// connectionsMost bounds the connections to each node that carry none: those of Ping and
	// of questions.
	connectionsMost = 8
)

// Tune sets what a sink needs of its client: deadlines that count from the last progress of
// a connection, few connections, and nothing that is sent again by itself. The other options
// stay as they are; a Dialer must be set before.
func Tune(options *goredis.UniversalOptions, config Config) {
	timeout, err := config.timeout()
	if err != nil {
		return // New says so.
	}
	dial := options.Dialer
	if dial == nil {
		dialer := &net.Dialer{Timeout: options.DialTimeout, KeepAlive: keepAlive}
		dial = dialer.DialContext
	}
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return newSocket(conn), nil
	}
	options.ReadTimeout, options.WriteTimeout, options.ContextTimeoutEnabled = timeout, timeout, true
	options.MaxRetries, options.DialerRetries = -1, 1
	options.Protocol = 2 // Nothing is pushed, and so no reply is looked at twice.
	options.PoolSize, options.PipelinePoolSize = connectionsMost, pipelinesMost
}
