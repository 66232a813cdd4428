package app

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/poller"
	"github.com/delaybridge/delaybridge/internal/store"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// queuesModule provides the queues. They depend on Redis and the sinks, and are
// started last, so that fx, which stops in reverse order, drains the pollers
// first, then closes the sinks, then Redis.
var queuesModule = fx.Module("queues", fx.Provide(provideQueues))

// queueSet are the queues of this instance, in the order of their names.
type queueSet []*queueRunner

type queueParams struct {
	fx.In

	Config     *config.Config
	Redis      redis.UniversalClient
	Sinks      sinkSet
	Metrics    *telemetry.Metrics
	Health     *health
	Logger     *slog.Logger
	Shutdowner fx.Shutdowner
	Failure    *failure
}

func provideQueues(p queueParams) queueSet {
	var set queueSet
	for _, name := range slices.Sorted(maps.Keys(p.Config.Queues)) {
		p.Metrics.AddQueue(name)
		set = append(set, newQueueRunner(p, name))
	}
	return set
}

// start begins in the background.
func (set queueSet) start(ctx context.Context) {
	for _, r := range set {
		r.start(ctx)
	}
}

// stop drains all queues at once, within the drain timeout.
func (set queueSet) stop(ctx context.Context) error {
	for _, r := range set {
		r.health.draining.Store(true)
	}
	problems := make([]error, len(set))
	var draining sync.WaitGroup
	for i, r := range set {
		draining.Go(func() { problems[i] = r.stop(ctx) })
	}
	draining.Wait()
	return errors.Join(problems...)
}

// live is an error where a loop hangs.
func (set queueSet) live() error {
	var problems []error
	for _, r := range set {
		if p := r.polling(); p != nil {
			problems = append(problems, p.Live())
		}
	}
	return errors.Join(problems...)
}

func newQueueRunner(p queueParams, name string) *queueRunner {
	cfg := p.Config.Queues[name]
	sink := p.Config.Sinks[cfg.Sink]
	r := &queueRunner{
		queue:    store.NewWithTimeout(p.Redis, p.Config.Prefix, name, p.Config.Redis.Timeout),
		want:     store.Layout{Shards: cfg.Shards, Sink: sink.Type, MaxMessage: int(cfg.MaxMessage)},
		rdb:      p.Redis,
		instance: p.Config.Instance,
		drain:    p.Config.DrainTimeout,
		health:   p.Health,
		logger:   p.Logger.With("queue", name, "instance", p.Config.Instance),
		fatal: func(err error) {
			p.Failure.set(err)
			_ = p.Shutdowner.Shutdown(fx.ExitCode(1)) // Fails only where nobody waits any more.
		},
	}
	r.newPoll = func(shards []int) (*poller.Poller, error) {
		return poller.New(poller.Config{
			Queue: name, Instance: p.Config.Instance, Shards: shards,
			Sink: p.Sinks[cfg.Sink], SinkName: cfg.Sink, Store: r.queue,
			Batch: p.Config.Poller.Batch, InFlight: p.Config.Poller.InFlight,
			ClaimTimeout: p.Config.Poller.ClaimTimeout, MaxSleep: p.Config.Poller.MaxSleep,
			Lease: p.Config.Poller.Lease, PublishTimeout: sink.PublishTimeout,
			Retry:  poller.Retry{Initial: cfg.Retry.Initial, Max: cfg.Retry.Max, Attempts: cfg.Retry.Attempts},
			Logger: p.Logger, Observer: p.Metrics, OnNoLayout: r.remake,
		})
	}
	return r
}
