package app

import (
	"log/slog"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/seal"
	"github.com/delaybridge/delaybridge/internal/health"
)

// redisModule provides the client of Redis, made first and so closed last, what is known of
// its health, and the keys of bodies, which are nil if there are none.
var redisModule = fx.Module("redis", fx.Provide(provideRedis, func() *health.Redis { return &health.Redis{} }, provideKeys))

func provideRedis(lc fx.Lifecycle, cfg *config.Config) (redis.UniversalClient, error) {
	rdb, err := cfg.Redis.Open(cfg.Instance)
	if err != nil {
		return nil, err
	}
	lc.Append(fx.StopHook(rdb.Close))
	return rdb, nil
}

func provideKeys(cfg *config.Config, logger *slog.Logger) (*seal.Keyring, error) {
	return cfg.Encryption.Open(logger)
}
