package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// memory is a fresh Redis with its log of changes on the disk each second, and a
// client. Each measurement has its own, so that none meets what another has left.
// The log is not rewritten: that would begin at any time.
type memory struct {
	*service.Server

	rdb *redis.Client
}

var redisArgs = []string{"--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"}

func startRedis(ctx context.Context, args ...string) (*memory, error) {
	server, err := service.StartRedis(ctx, append(slices.Clone(redisArgs), args...)...)
	if err != nil {
		return nil, err
	}
	return &memory{Server: server, rdb: newClient(server)}, nil
}

func newClient(server *service.Server) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: server.Addr(), PoolSize: 100, ReadTimeout: patience, ContextTimeoutEnabled: true, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

func (m *memory) close() {
	_ = m.rdb.Close()
	m.Close()
}

// bytes is what the data take.
func (m *memory) bytes(ctx context.Context) (float64, error) {
	info, err := m.rdb.InfoMap(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	var used float64
	_, err = fmt.Sscan(info["Memory"]["used_memory"], &used)
	return used, err
}

// redisVersion starts Redis to ask it.
func redisVersion(ctx context.Context) (string, error) {
	m, err := startRedis(ctx)
	if err != nil {
		return "", err
	}
	defer m.close()
	info, err := m.rdb.InfoMap(ctx, "server").Result()
	return "Redis " + info["Server"]["redis_version"], err
}
