// Package preflight makes the steps of `bridge check` from a configuration. Each
// part has its checks in its own package: fit, the sinks, outbox/table. This
// package has the checks across parts, and those of the bridge itself.
package preflight

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/config"
)

// Flight checks a configuration, with the topics that the operator named. Close ends
// its connections.
type Flight struct {
	config *config.Config
	named  []string
	rdb    redis.UniversalClient
	// waiting are the topics found in Redis, by queue, once found is closed.
	waiting map[string][]string
	found   chan struct{}
}

// New prepares the checks; it does no I/O except reading files. topics are TOPIC,
// for every queue, or QUEUE=TOPIC.
func New(cfg *config.Config, topics []string) (*Flight, error) {
	rdb, err := cfg.Redis.Open("delaybridge-check")
	if err != nil {
		return nil, err
	}
	return &Flight{config: cfg, named: topics, rdb: rdb, waiting: map[string][]string{}, found: make(chan struct{})}, nil
}

// Close ends the connections to Redis.
func (f *Flight) Close() { _ = f.rdb.Close() } // Nothing is pending.

// Steps returns all checks.
func (f *Flight) Steps() ([]check.Step, error) {
	steps := []check.Step{
		{Area: "bridge", Subject: "configuration", Run: func(context.Context) []check.Finding { return own(f.config) }},
		{Area: "redis", Subject: "redis", Run: f.redis},
	}
	for _, name := range slices.Sorted(maps.Keys(f.config.Admin.Auth.Issuers)) {
		steps = append(steps, check.Step{Area: "bridge", Subject: "issuer " + name, Run: func(ctx context.Context) []check.Finding {
			return issuer(ctx, name, f.config.Admin.Auth.Issuers[name])
		}})
	}
	if f.config.Redis.Mode == config.Sentinel {
		steps = append(steps, check.Step{Area: "redis", Subject: "sentinels", Run: f.sentinels})
	}
	for _, name := range slices.Sorted(maps.Keys(f.config.Outbox)) {
		steps = append(steps, check.Step{Area: "outbox", Subject: "outbox " + name, Run: func(ctx context.Context) []check.Finding {
			return f.outbox(ctx, f.config.Outbox[name])
		}})
	}
	for _, name := range slices.Sorted(maps.Keys(f.config.Sinks)) {
		cfg := f.config.Sinks[name]
		// A sink logs its trouble; here its findings report that.
		sink, err := cfg.Settings("delaybridge-check").Open(slog.New(slog.DiscardHandler))
		if err != nil {
			return nil, fmt.Errorf("sinks.%s: %w", name, err)
		}
		steps = append(steps, check.Step{Area: string(cfg.Type), Subject: "sink " + name, Run: func(ctx context.Context) []check.Finding {
			return f.sink(ctx, name, sink)
		}})
	}
	for _, name := range slices.Sorted(maps.Keys(f.config.Inlets)) {
		step, err := f.inlet(name)
		if err != nil {
			return nil, fmt.Errorf("inlets.%s: %w", name, err)
		}
		steps = append(steps, step)
	}
	return steps, nil
}

// topicsOf returns the topics of a queue that are known without a call.
func (f *Flight) topicsOf(queue string) []string {
	topics := slices.Collect(maps.Keys(f.config.Queues[queue].Rate.ByTopic()))
	for _, text := range f.named {
		of, topic, found := strings.Cut(text, "=")
		if _, isQueue := f.config.Queues[of]; !found || !isQueue {
			of, topic = queue, text
		}
		if of == queue {
			topics = append(topics, topic)
		}
	}
	return topics
}
