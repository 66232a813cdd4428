package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/fx"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/poller"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// changeable are the keys that may change while the bridge runs. Whoever uses them has them
// in memory, or looks at them at each turn: so a change cannot fail halfway.
var changeable = []string{
	"log.level",
	"queues.*.rate.messages", "queues.*.rate.topics",
	"queues.*.late.after", "queues.*.late.then",
	"queues.*.retry.initial", "queues.*.retry.max", "queues.*.retry.attempts",
	"queues.*.park_patience",
	"queues.*.dead.keep", "queues.*.dead.max",
	"queues.*.budget.bytes", "queues.*.budget.policy",
}

// errRestart is returned where a configuration differs in what cannot change.
var errRestart = errors.New("needs a restart")

// Reload has the daemon load its configuration again whenever something is received from
// asked, and take what is changeable. Where anything else differs, or the configuration
// is not right, all stays as it is.
func Reload(asked <-chan os.Signal, load func() (*config.Config, error)) fx.Option {
	return fx.Supply(reloads{asked, load})
}

type reloads struct {
	asked <-chan os.Signal
	load  func() (*config.Config, error)
}

type reloadParams struct {
	fx.In

	Reloads reloads `optional:"true"`
	Config  *config.Config
	Level   *telemetry.Level `optional:"true"`
	Metrics *telemetry.Metrics
	Queues  *queueSet
	Logger  *slog.Logger
}

// startReloads listens once all else has started, and until anything stops. What is asked
// before waits in the channel, what is asked later is ignored.
func startReloads(lc fx.Lifecycle, p reloadParams) {
	if p.Reloads.asked == nil {
		return
	}
	r := &reloader{
		reloads: p.Reloads, config: p.Config, level: p.Level, queues: p.Queues, metrics: p.Metrics,
		logger: p.Logger.With("instance", p.Config.Instance),
	}
	var cancel context.CancelFunc
	var listening sync.WaitGroup
	lc.Append(fx.StartStopHook(func(ctx context.Context) {
		ctx, cancel = context.WithCancel(context.WithoutCancel(ctx))
		listening.Go(func() { r.run(ctx) })
	}, func() {
		cancel()
		listening.Wait()
	}))
}

// reloader gives what runs another configuration. It is not safe for concurrent use.
type reloader struct {
	reloads
	config  *config.Config // in force
	level   *telemetry.Level
	queues  *queueSet
	metrics *telemetry.Metrics
	logger  *slog.Logger
}

// run reloads when it is asked to, until ctx ends.
func (r *reloader) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.asked:
			r.reload()
		}
	}
}

// reload loads the configuration, takes it, and says so.
func (r *reloader) reload() {
	next, err := r.load()
	var changed []string
	if err == nil {
		changed, err = r.take(next)
	}
	r.metrics.Reloaded(err)
	if err != nil {
		r.logger.Error("configuration not reloaded, the one before stays in force", "event", "reload", "err", err)
		return
	}
	r.logger.Info("configuration reloaded", "event", "reload", "changed", changed)
}

// take puts a configuration in force, and returns the keys that have changed.
func (r *reloader) take(next *config.Config) (changed []string, err error) {
	changed = config.Diff(r.config, next)
	if fixed := slices.DeleteFunc(slices.Clone(changed), isChangeable); len(fixed) > 0 {
		return nil, fmt.Errorf("%w: %s", errRestart, strings.Join(fixed, ", "))
	}
	if r.level != nil && next.Log.Level != r.config.Log.Level {
		r.level.Configure(next.Log.Level)
	}
	for _, queue := range r.queues.runners {
		name := queue.queue.Name()
		if !slices.ContainsFunc(changed, func(key string) bool { return strings.HasPrefix(key, "queues."+name+".") }) {
			continue // Its rates would begin empty.
		}
		cfg := next.Queues[name]
		queue.change(&cfg)
		r.metrics.RateLimit(name, cfg.Rate.Messages, cfg.Rate.ByTopic())
	}
	r.config = next
	return changed, nil
}

func isChangeable(key string) bool {
	slashed := strings.ReplaceAll(key, ".", "/") // So that a * is one name.
	return slices.ContainsFunc(changeable, func(pattern string) bool {
		matches, err := path.Match(strings.ReplaceAll(pattern, ".", "/"), slashed)
		return matches && err == nil
	})
}

// settings are what the configuration says of a queue.
type settings struct {
	// queue is replaced as a whole when the configuration changes; then changing has the
	// poller told, too.
	queue    atomic.Pointer[config.Queue]
	changing sync.Mutex
	// drain bounds the wait for acknowledgements at a stop.
	drain time.Duration
}

// polls notes the poller, whose settings may have changed since it was made.
func (r *queueRunner) polls(p *poller.Poller) {
	r.settings.changing.Lock()
	defer r.settings.changing.Unlock()
	r.poller.Store(p)
	p.Change(policyOf(r.settings.queue.Load()))
}

// change gives a queue another configuration, which differs in changeable keys only. What
// does not poll reads it at its next turn.
func (r *queueRunner) change(cfg *config.Queue) {
	r.settings.changing.Lock()
	defer r.settings.changing.Unlock()
	r.settings.queue.Store(cfg)
	if p := r.poller.Load(); p != nil {
		p.Change(policyOf(cfg))
	}
}

// policyOf is what the poller is told of a queue's configuration.
func policyOf(cfg *config.Queue) poller.Policy {
	return poller.Policy{
		Retry:        poller.Retry{Initial: cfg.Retry.Initial, Max: cfg.Retry.Max, Attempts: cfg.Retry.Attempts},
		ParkPatience: cfg.ParkPatience, Late: message.Late(cfg.Late),
		Rates: poller.Rates{Messages: cfg.Rate.Messages, Topics: cfg.Rate.ByTopic()},
	}
}
