package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// world is one server, and what was measured with it: a list each for ours and the
// raw scripts, by step.
type world struct {
	server *service.Server
	rdb    *redis.Client
	found  map[string][2][]result
}

func (s settings) start(ctx context.Context, program string) (*world, error) {
	args := []string{}
	if s.log {
		args = append(args, "--appendonly", "yes")
	}
	server, err := service.StartRedisProgram(ctx, program, args...)
	if err != nil {
		return nil, err
	}
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		server.Close()
		return nil, err
	}
	options.PoolSize, options.ReadTimeout = 64, patience
	return &world{server, redis.NewClient(options), map[string][2][]result{}}, nil
}

func (w *world) close() {
	_ = w.rdb.Close()
	w.server.Close()
}

func (w *world) version(ctx context.Context) string {
	about := w.rdb.InfoMap(ctx, "server").Val()["Server"]
	if about["server_name"] == "valkey" {
		return "Valkey " + about["valkey_version"]
	}
	return "Redis " + cmp.Or(about["redis_version"], "of an unknown version")
}

// measure is one repetition.
func (w *world) measure(ctx context.Context, s settings) error {
	for i, begin := range []func(context.Context, *redis.Client, bool) (subject, error){newOurs, newRaw} {
		if err := w.rdb.FlushAll(ctx).Err(); err != nil {
			return err
		}
		subject, err := begin(ctx, w.rdb, s.alike)
		if err != nil {
			return err
		}
		for _, step := range s.steps(subject) {
			r, err := measure(ctx, w.rdb, step)
			if err != nil {
				return fmt.Errorf("%s: %w", step.name, err)
			}
			list := w.found[step.name]
			list[i] = append(list[i], r)
			w.found[step.name] = list
		}
	}
	return nil
}
