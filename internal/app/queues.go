package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/admin"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/seal"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/hints"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/jobs"
	"github.com/delaybridge/delaybridge/internal/membership"
	"github.com/delaybridge/delaybridge/internal/poller"
	"github.com/delaybridge/delaybridge/internal/telemetry"
	"github.com/delaybridge/delaybridge/internal/window"
)

// queuesModule provides the queues. They depend on Redis and the sinks, and are
// started last, so that fx, which stops in reverse order, drains the pollers
// first, then closes the sinks, then Redis.
var queuesModule = fx.Module("queues", fx.Provide(provideQueues))

// queueSet are the queues of this instance, in the order of their names. It
// owns the goroutines of what all of them share: the hints, the check of Redis.
type queueSet struct {
	runners []*queueRunner
	// windows are the sinks', by name: queues that name one sink share it.
	windows map[string]*window.Window
	opening sync.Mutex         // guards windows
	budgets map[string]*budget // by queue
	memory  *memory
	metrics *telemetry.Metrics
	hints   *hints.Subscriber
	check   *redisCheck
	health  *health
	fatal   func(error)
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

type queueParams struct {
	fx.In

	Config     *config.Config
	Identity   identity
	Redis      redis.UniversalClient
	Sinks      sinkSet
	Keys       *seal.Keyring
	Metrics    *telemetry.Metrics
	Traces     *telemetry.Traces
	Health     *health
	Logger     *slog.Logger
	Shutdowner fx.Shutdowner
	Failure    *failure
}

func provideQueues(p queueParams) (*queueSet, error) {
	set := &queueSet{
		windows: map[string]*window.Window{},
		budgets: map[string]*budget{},
		memory:  newMemory(p.Redis, p.Metrics),
		metrics: p.Metrics,
		hints:   hints.New(p.Redis),
		health:  p.Health,
		check:   newRedisCheck(p.Redis, p.Health, p.Logger.With("instance", p.Config.Instance)),
		fatal: func(err error) {
			p.Failure.set(err)
			_ = p.Shutdowner.Shutdown(fx.ExitCode(1)) // Fails only where nobody waits any more.
		},
	}
	batcher := conn.NewBatcher(p.Redis)
	for _, name := range slices.Sorted(maps.Keys(p.Config.Queues)) {
		p.Metrics.AddQueue(name)
		r, err := newQueueRunner(p, set, batcher, name)
		if err != nil {
			return nil, fmt.Errorf("queue %s: %w", name, err)
		}
		set.runners = append(set.runners, r)
	}
	return set, nil
}

// start begins in the background.
func (set *queueSet) start(ctx context.Context) {
	ctx, set.cancel = context.WithCancel(context.WithoutCancel(ctx))
	set.done.Go(func() { set.hints.Run(ctx) })
	set.done.Go(func() { set.check.run(ctx, set.fatal) })
	set.done.Go(func() { set.memory.run(ctx) })
	for _, r := range set.runners {
		r.start(ctx)
	}
}

// stop drains all queues at once, within the drain timeout.
func (set *queueSet) stop(ctx context.Context) error {
	set.health.draining.Store(true)
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
		if p := r.poller.Load(); p != nil {
			problems = append(problems, p.Live())
		}
	}
	return errors.Join(problems...)
}

// checks are the lines of /readyz that tell of the queues' durability.
func (set *queueSet) checks() (checks []admin.Check) {
	for _, r := range set.runners {
		if r.durable != nil {
			checks = append(checks, r.durable.check())
		}
	}
	return checks
}

// window is what the sink may have in flight, over all queues.
func (set *queueSet) window(sink string) *window.Window {
	set.opening.Lock()
	defer set.opening.Unlock()
	if set.windows[sink] == nil {
		set.windows[sink] = window.New()
		set.metrics.AddWindow(sink, set.windows[sink])
	}
	return set.windows[sink]
}

// isFailing reports whether what the queues publish to the sink fails as a whole.
func (set *queueSet) isFailing(sink string) bool {
	set.opening.Lock()
	defer set.opening.Unlock()
	w := set.windows[sink]
	return w != nil && w.IsDown()
}

func newQueueRunner(p queueParams, set *queueSet, batcher *conn.Batcher, name string) (*queueRunner, error) {
	cfg := p.Config.Queues[name]
	sink := p.Config.Sinks[cfg.Sink]
	instance := string(p.Identity)
	durable := Durability(cfg)
	r := &queueRunner{
		queue: store.NewWithTimeout(p.Redis, p.Config.Prefix, name, p.Config.Redis.Timeout).WithBatcher(batcher).WithDurability(durable),
		check: set.check, made: make(chan struct{}), fatal: set.fatal,
		logger: p.Logger.With("queue", name, "instance", p.Config.Instance),
	}
	r.settings.drain = p.Config.DrainTimeout
	r.settings.queue.Store(&cfg)
	r.jobs = jobs.New(job.New(r.queue), instance, r.logger)
	r.beside = append(r.beside, r.jobs.Run)
	p.Metrics.RateLimit(name, cfg.Rate.Messages, cfg.Rate.ByTopic())
	r.durable = newDurabilityWatch(r.queue, durable, p.Metrics, r.logger)
	r.member = membership.New(membership.Config{
		Queue: name, Instance: instance, Lease: p.Config.Poller.Lease,
		Want:  Layout(cfg, sink.Type),
		Store: r.queue.Members(), Registry: r.queue.Layouts(), Keeper: r.queue.NewKeeper(), Observer: p.Metrics, Logger: r.logger,
		Heard: p.Health.redisHeard, Hear: r.hear(set.hints), Reborn: r.wasReborn,
	})
	within := &budget{
		name: name, limits: func() config.Budget { return r.settings.queue.Load().Budget }, admin: inspect.NewAdmin(r.queue), isKeeper: r.member.IsKeeper, metrics: p.Metrics, logger: r.logger,
	}
	set.budgets[name] = within
	r.beside = append(r.beside, within.run, func(ctx context.Context) { set.tellRooms(ctx, r) })
	dead := &deadLimits{
		limits: func() inspect.DeadLimits { return inspect.DeadLimits(r.settings.queue.Load().Dead) },
		admin:  inspect.NewAdmin(r.queue), isKeeper: r.member.IsKeeper, logger: r.logger,
	}
	r.beside = append(r.beside, dead.run)
	canary, err := newCanary(p, r, name)
	if err != nil {
		return nil, err
	}
	if canary != nil {
		r.beside = append(r.beside, canary.run)
	}
	r.newPoll = func() (*poller.Poller, error) {
		return poller.New(poller.Config{
			Queue: name, Instance: instance, Store: func(shard int) poller.Store { return r.queue.Shard(shard) },
			Sink: poller.Sink{
				Sink: p.Sinks[cfg.Sink], Name: cfg.Sink, Timeout: sink.PublishTimeout, Window: set.window(cfg.Sink), Open: opener(p.Keys),
			},
			Claims: claims(p.Config.Poller, durable.Asked()), Policy: policyOf(r.settings.queue.Load()),
			Places: cfg.History.Count > 0, Topics: r.queue.Topics(), Bucket: r.queue.Members(),
			Logger: p.Logger, Observer: p.Metrics,
			Hooks: poller.Hooks{
				OnNoLayout: func(ctx context.Context, _ int) { r.member.NoMeta(ctx) },
				OnEpoch:    r.member.SawEpoch, OnLateAcks: r.lateAcks(),
				OnPublished: publishedHook(p.Traces.Publishing(name, sink.Type), canary),
			},
		})
	}
	return r, nil
}

func claims(cfg config.Poller, durable bool) poller.Claims {
	return poller.Claims{
		Batch: cfg.Batch, InFlight: cfg.InFlight, Timeout: cfg.ClaimTimeout, MaxSleep: cfg.MaxSleep, Lease: cfg.Lease,
		Durable: durable,
	}
}
