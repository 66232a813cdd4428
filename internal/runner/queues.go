package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/admin"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/seal"
	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/hints"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/health"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/telemetry"
	"github.com/delaybridge/delaybridge/internal/upkeep"
	"github.com/delaybridge/delaybridge/internal/window"
)

// Config is what queues run with. All fields are required except Keys.
type Config struct {
	Config *config.Config
	// Instance is the process' identity, "name/boot".
	Instance string
	Redis    redis.UniversalClient
	Sinks    map[string]sinks.Sink
	Keys     *seal.Keyring // of encrypted bodies
	Metrics  *telemetry.Metrics
	Traces   *telemetry.Traces
	Health   *health.Redis
	Logger   *slog.Logger
	// Fatal ends the program. It must not block.
	Fatal func(error)
}

// Queues are the queues of this instance, in the order of their names. It owns the goroutines of
// the parts that all queues share: the hints, the gate of Redis, and the watch of its memory.
type Queues struct {
	queues  []*queue
	windows map[string]*window.Window // of each sink that a queue names, by name
	batcher *conn.Batcher
	memory  *upkeep.Memory
	hints   *hints.Subscriber
	gate    *health.Gate
	fatal   func(error)
	cancel  context.CancelFunc
	done    sync.WaitGroup
}

// NewQueues makes them; it does no I/O.
func NewQueues(cfg Config) (*Queues, error) {
	set := &Queues{
		windows: map[string]*window.Window{}, batcher: conn.NewBatcher(cfg.Redis),
		memory: upkeep.NewMemory(cfg.Redis, cfg.Metrics), hints: hints.New(cfg.Redis),
		gate:  health.NewGate(cfg.Redis, cfg.Health, cfg.Logger.With("instance", cfg.Config.Instance)),
		fatal: cfg.Fatal,
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Config.Queues)) {
		if sink := cfg.Config.Queues[name].Sink; set.windows[sink] == nil {
			set.windows[sink] = window.New()
			cfg.Metrics.AddWindow(sink, set.windows[sink])
		}
		q, err := newQueue(cfg, set, name)
		if err != nil {
			return nil, fmt.Errorf("queue %s: %w", name, err)
		}
		set.queues = append(set.queues, q)
	}
	return set, nil
}

// Start begins in the background.
func (set *Queues) Start(ctx context.Context) {
	ctx, set.cancel = context.WithCancel(context.WithoutCancel(ctx))
	set.done.Go(func() { set.hints.Run(ctx) })
	set.done.Go(func() { set.gate.Run(ctx, set.fatal) })
	set.done.Go(func() { set.memory.Run(ctx) })
	for _, q := range set.queues {
		q.start(ctx)
	}
}

// Stop drains all queues at once, within the drain timeout.
func (set *Queues) Stop(ctx context.Context) error {
	problems := make([]error, len(set.queues))
	var draining sync.WaitGroup
	for i, q := range set.queues {
		draining.Go(func() { problems[i] = q.stop(ctx) })
	}
	draining.Wait()
	set.cancel()
	set.done.Wait()
	return errors.Join(problems...)
}

// Live returns an error if a loop hangs.
func (set *Queues) Live() error {
	var problems []error
	for _, q := range set.queues {
		if p := q.poller.Load(); p != nil {
			problems = append(problems, p.Live())
		}
	}
	return errors.Join(problems...)
}

// Checks returns the lines of /readyz about the queues' durability.
func (set *Queues) Checks() (checks []admin.Check) {
	for _, q := range set.queues {
		if q.durability != nil {
			checks = append(checks, q.durability.Check())
		}
	}
	return checks
}

// IsFailing reports whether publishing to the sink fails as a whole.
func (set *Queues) IsFailing(sink string) bool {
	w := set.windows[sink]
	return w != nil && w.IsDown()
}

// Rooms returns how full a queue and Redis are, as far as is known.
func (set *Queues) Rooms(name string) (rooms inspect.Rooms) {
	if q := set.find(name); q != nil {
		rooms = q.rooms.Now()
	}
	return rooms
}

// Unconfirmed returns why the writes of a queue's shards are not confirmed, by shard, as far
// as is known; nil if the queue asks for no confirmation.
func (set *Queues) Unconfirmed(name string) []error {
	if q := set.find(name); q != nil && q.durability != nil {
		return q.durability.Whys()
	}
	return nil
}

// InForce returns the configuration of a queue that is in force now; nil if there is none.
func (set *Queues) InForce(name string) *config.Queue {
	if q := set.find(name); q != nil {
		return q.inForce.Load()
	}
	return nil
}

// Change puts another configuration in force, which differs in these keys, all of them
// changeable. A queue without a changed key is left alone, since its rates would start
// again empty.
func (set *Queues) Change(next *config.Config, changed []string) {
	for _, q := range set.queues {
		name := q.store.Name()
		if slices.ContainsFunc(changed, func(key string) bool { return strings.HasPrefix(key, "queues."+name+".") }) {
			cfg := next.Queues[name]
			q.change(&cfg)
		}
	}
}

func (set *Queues) find(name string) *queue {
	at := slices.IndexFunc(set.queues, func(q *queue) bool { return q.store.Name() == name })
	if at < 0 {
		return nil
	}
	return set.queues[at]
}
