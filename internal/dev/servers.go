package dev

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
)

// The usual ports, taken where they are free.
const (
	usualRedisPort = 6379
	usualNATSPort  = 4222
	usualAdminPort = 8080
)

// Options says what to start.
type Options struct {
	// Dir holds the data; it must exist.
	Dir string
	// InMemory runs Redis in this process, even where redis-server is installed.
	InMemory bool
	// Ports; 0 is the usual one, or a free one if that is taken.
	RedisPort, NATSPort, AdminPort int
	// Logger gets what the servers complain about.
	Logger *slog.Logger
	// OnPublish, where set, is called for each message of the bridge that
	// reaches NATS, one after the other. It must not block.
	OnPublish func(Arrival)
}

// Servers are a running Redis and a running NATS.
type Servers struct {
	// RedisAddr and NATSAddr are host:port.
	RedisAddr, NATSAddr string
	// Admin is for the bridge's admin listener, which may close it.
	Admin net.Listener
	// RedisNote says which Redis it is, for people.
	RedisNote string
	// Clock is that of the Redis in this process; nil of a redis-server.
	Clock *Clock

	redis   redisServer
	nats    *natsServer
	streams *streamMaker
	ports   ports
	unlock  func()
}

// redisServer is a Redis that runs until close.
type redisServer interface {
	// failed is closed, or receives, when it ends by itself; nil if it cannot.
	failed() <-chan error
	close()
}

// Start starts the servers. They run until [Servers.Close], whatever becomes of
// ctx, which bounds the start only; they end with this process at the latest.
func Start(ctx context.Context, o Options) (*Servers, error) {
	s := &Servers{}
	if err := s.start(ctx, o); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Servers) start(ctx context.Context, o Options) (err error) {
	if s.unlock, err = lock(o.Dir); err != nil {
		return err
	}
	defer awaitTurn(ctx)()
	if s.ports, err = bind(o); err != nil {
		return err
	}
	s.Admin = s.ports.admin
	redisDir, natsDir := filepath.Join(o.Dir, "redis"), filepath.Join(o.Dir, "nats")
	for _, dir := range []string{redisDir, natsDir} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make data folder: %w", err)
		}
	}
	s.RedisAddr = release(s.ports.redis)
	if s.redis, s.RedisNote, err = startRedis(ctx, s.RedisAddr, redisDir, o.InMemory); err != nil {
		return fmt.Errorf("start redis: %w", err)
	}
	if m, isMini := s.redis.(mini); isMini {
		s.Clock = m.clock
	}
	s.NATSAddr = release(s.ports.nats)
	if s.nats, err = startNATS(s.NATSAddr, natsDir, o.Logger); err != nil {
		return fmt.Errorf("start nats: %w", err)
	}
	if s.streams, err = startStreamMaker(ctx, s.nats, s.Clock, o.OnPublish, o.Logger); err != nil {
		return fmt.Errorf("watch nats: %w", err)
	}
	return nil
}

// Failed is closed, or receives the cause, when a server ends by itself.
func (s *Servers) Failed() <-chan error { return s.redis.failed() }

// Follow makes the stream of a topic, if there is none, and calls yield for
// what is stored there from now on, until ctx ends.
func (s *Servers) Follow(ctx context.Context, topic string, yield func(Arrival)) error {
	return s.streams.follow(ctx, topic, yield)
}

// Close stops the servers and returns when they have ended.
func (s *Servers) Close() {
	if s.streams != nil {
		s.streams.close()
	}
	if s.nats != nil {
		s.nats.close()
	}
	if s.redis != nil {
		s.redis.close()
	}
	s.ports.close()
	if s.unlock != nil {
		s.unlock()
	}
}

// ErrInUse is returned for a folder that another process works on.
var ErrInUse = errors.New("another bridge uses this folder")
