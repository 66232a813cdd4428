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

// queueSet are the queues of this instance, in the order of their names. It
// owns the goroutines of what all of them share: the hints, the check of Redis.
type queueSet struct {
	runners []*queueRunner
	hints   *store.Hints
	check   *redisCheck
	fatal   func(error)
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

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

func provideQueues(p queueParams) *queueSet {
	set := &queueSet{
		hints: store.NewHints(p.Redis),
		check: newRedisCheck(p.Redis, p.Logger.With("instance", p.Config.Instance)),
		fatal: func(err error) {
			p.Failure.set(err)
			_ = p.Shutdowner.Shutdown(fx.ExitCode(1)) // Fails only where nobody waits any more.
		},
	}
	batcher := store.NewBatcher(p.Redis)
	for _, name := range slices.Sorted(maps.Keys(p.Config.Queues)) {
		p.Metrics.AddQueue(name)
		set.runners = append(set.runners, newQueueRunner(p, set, batcher, name))
	}
	return set
}

// start begins in the background.
func (set *queueSet) start(ctx context.Context) {
	ctx, set.cancel = context.WithCancel(context.WithoutCancel(ctx))
	set.done.Go(func() { set.hints.Run(ctx) })
	set.done.Go(func() { set.check.run(ctx, set.fatal) })
	for _, r := range set.runners {
		r.start(ctx)
	}
}

// stop drains all queues at once, within the drain timeout.
func (set *queueSet) stop(ctx context.Context) error {
	for _, r := range set.runners {
		r.health.draining.Store(true)
	}
	problems := make([]error, len(set.runners))
	var draining sync.WaitGroup
	for i, r := range set.runners {
		draining.Go(func() { problems[i] = r.stop(ctx) })
	}
	draining.Wait()
	set.cancel()
	set.done.Wait()
	return errors.Join(problems...)
}

// live is an error where a loop hangs.
func (set *queueSet) live() error {
	var problems []error
	for _, r := range set.runners {
		if p := r.polling(); p != nil {
			problems = append(problems, p.Live())
		}
	}
	return errors.Join(problems...)
}

func newQueueRunner(p queueParams, set *queueSet, batcher *store.Batcher, name string) *queueRunner {
	cfg := p.Config.Queues[name]
	sink := p.Config.Sinks[cfg.Sink]
	r := &queueRunner{
		queue:    store.NewWithTimeout(p.Redis, p.Config.Prefix, name, p.Config.Redis.Timeout).WithBatcher(batcher),
		want:     store.Layout{Shards: cfg.Shards, Sink: sink.Type, MaxMessage: int(cfg.MaxMessage)},
		check:    set.check,
		hints:    set.hints,
		instance: p.Config.Instance,
		lease:    p.Config.Poller.Lease,
		drain:    p.Config.DrainTimeout,
		health:   p.Health,
		metrics:  p.Metrics,
		changed:  make(chan struct{}, 1),
		made:     make(chan struct{}),
		logger:   p.Logger.With("queue", name, "instance", p.Config.Instance),
		fatal:    set.fatal,
	}
	keeper := store.NewKeeper(r.queue)
	keeper.Lost = r.sayLost
	r.keeper = keeper
	r.newPoll = func() (*poller.Poller, error) {
		return poller.New(poller.Config{
			Queue: name, Instance: p.Config.Instance,
			Sink: p.Sinks[cfg.Sink], SinkName: cfg.Sink, Store: r.queue,
			Batch: p.Config.Poller.Batch, InFlight: p.Config.Poller.InFlight,
			ClaimTimeout: p.Config.Poller.ClaimTimeout, MaxSleep: p.Config.Poller.MaxSleep,
			Lease: p.Config.Poller.Lease, PublishTimeout: sink.PublishTimeout,
			Retry:  poller.Retry{Initial: cfg.Retry.Initial, Max: cfg.Retry.Max, Attempts: cfg.Retry.Attempts},
			Logger: p.Logger, Observer: p.Metrics, OnNoLayout: r.noMeta, OnEpoch: r.sawEpoch, OnLateAcks: r.lateAcks(),
		})
	}
	return r
}
