package app

import (
	"fmt"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/redisclient"
)

// redisModule provides the client of Redis. It is made first and so closed last.
var redisModule = fx.Module("redis", fx.Provide(provideRedis))

func provideRedis(lc fx.Lifecycle, cfg *config.Config) (redis.UniversalClient, error) {
	rdb, err := NewRedis(cfg.Redis, cfg.Instance)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StopHook(rdb.Close))
	return rdb, nil
}

// NewRedis returns a client for the configured Redis; it does no I/O. Each call
// ends with its ctx, and after the configured timeout.
func NewRedis(cfg config.Redis, name string) (redis.UniversalClient, error) {
	rdb, err := redisclient.New(redisConfig(cfg, name), nil)
	if err != nil {
		return nil, fmt.Errorf("redis.%w", err)
	}
	return rdb, nil
}

// NewSentinels returns a client for each configured sentinel; it does no I/O.
func NewSentinels(cfg config.Redis) ([]*redis.SentinelClient, error) {
	clients, err := redisclient.Sentinels(redisConfig(cfg, ""))
	if err != nil {
		return nil, fmt.Errorf("redis.%w", err)
	}
	return clients, nil
}

func redisConfig(cfg config.Redis, name string) redisclient.Config {
	return redisclient.Config{
		URL: cfg.URL, Master: cfg.Master, Sentinels: cfg.Sentinels, Addrs: cfg.Addrs,
		Username: cfg.Username, Password: cfg.Password,
		SentinelUsername: cfg.SentinelUsername, SentinelPassword: cfg.SentinelPassword,
		TLS: cfg.TLS, DialTimeout: cfg.DialTimeout, Timeout: cfg.Timeout, Name: name,
	}
}
