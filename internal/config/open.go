package config

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/seal"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/redisclient"
)

// Open returns a client for the configured Redis, which knows it by the name; it does no
// I/O. Each call ends with its ctx, and after the configured timeout.
func (r *Redis) Open(name string) (redis.UniversalClient, error) {
	rdb, err := redisclient.New(r.client(name), nil)
	if err != nil {
		return nil, fmt.Errorf("redis.%w", err)
	}
	return rdb, nil
}

// OpenSentinels returns a client for each configured sentinel; it does no I/O.
func (r *Redis) OpenSentinels() ([]*redis.SentinelClient, error) {
	clients, err := redisclient.Sentinels(r.client(""))
	if err != nil {
		return nil, fmt.Errorf("redis.%w", err)
	}
	return clients, nil
}

func (r *Redis) client(name string) redisclient.Config {
	return redisclient.Config{
		URL: r.URL, Master: r.Master, Sentinels: r.Sentinels, Addrs: r.Addrs,
		Username: r.Username, Password: r.Password,
		SentinelUsername: r.SentinelUsername, SentinelPassword: r.SentinelPassword,
		TLS: r.TLS, DialTimeout: r.DialTimeout, Timeout: r.Timeout, Name: name,
	}
}

// Open reads the configured keys of bodies; nil if there are none. The logger is told
// when they change; it may be nil.
func (e *Encryption) Open(logger *slog.Logger) (*seal.Keyring, error) {
	if e.Keys == "" {
		return nil, nil //nolint:nilnil // There need not be any.
	}
	ring, err := seal.Load(e.Keys, logger)
	if err != nil {
		return nil, fmt.Errorf("encryption.keys: %w", err)
	}
	return ring, nil
}

// Clients makes the SDK's clients of a queue, one for each policy; keys may be nil. They wait for
// what the queue's durability asks, as the bridge's own writes do.
func (c *Config) Clients(rdb redis.UniversalClient, queue string, keys *seal.Keyring, options ...delay.Option) (map[delay.Conflict]*delay.Client, error) {
	q := c.Queues[queue]
	own := append(c.ClientOptions(keys), delay.WithDurability(q.clientDurability()))
	options = append(own, options...)
	clients := map[delay.Conflict]*delay.Client{}
	for _, conflict := range []delay.Conflict{delay.Reject, delay.Keep, delay.Replace} {
		client, err := delay.NewClient(rdb, queue, append(slices.Clip(options), delay.WithConflict(conflict))...)
		if err != nil {
			return nil, fmt.Errorf("queue %s: %w", queue, err)
		}
		clients[conflict] = client
	}
	return clients, nil
}

// ClientOptions are those of the bridge's own clients of the SDK; keys may be nil.
func (c *Config) ClientOptions(keys *seal.Keyring) []delay.Option {
	options := []delay.Option{delay.WithPrefix(c.Prefix)}
	if keys != nil {
		options = append(options, delay.WithEncryption(keys))
	}
	return options
}

// Layout is what the queue's configuration tells its producers, by way of its layout.
func (q *Queue) Layout(sink message.SinkType) store.Layout {
	l := store.Layout{Shards: q.Shards, Sink: sink, MaxMessage: int(q.MaxMessage)}
	l.Rules.Topics = q.Topics
	if q.History.Count > 0 {
		l.Rules.History = layout.History(q.History)
	}
	return l
}

// clientDurability is the queue's durability as the SDK knows it.
func (q *Queue) clientDurability() delay.Durability {
	switch q.Durability {
	case Replicas:
		return delay.Replicas(q.Replicas)
	case Fsync:
		return delay.Fsync
	case Memory:
	}
	return delay.Memory
}

// Confirmation is what must have confirmed the bridge's own writes for the queue.
func (q *Queue) Confirmation() store.Durability {
	switch q.Durability {
	case Replicas:
		return store.ByReplicas(q.Replicas)
	case Fsync:
		return store.ByFsync()
	case Memory:
	}
	return store.Durability{}
}
