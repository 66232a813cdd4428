package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/admin"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/seal"
	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/hints"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/health"
	"github.com/delaybridge/delaybridge/internal/operate"
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

// Queues are the queues of this instance. They may come, go, and start again with other settings while
// the others run, see change.go. It owns the goroutines of the parts that all queues share: the hints,
// the gate of Redis, and the watch of its memory.
type Queues struct {
	windows map[string]*window.Window // of each sink, by name
	batcher *conn.Batcher
	memory  *upkeep.Memory
	hints   *hints.Subscriber
	gate    *health.Gate
	cancel  context.CancelFunc
	done    sync.WaitGroup
	// used has the queues as the API uses them; it is replaced as a whole.
	used atomic.Pointer[map[string]*operate.Queue]

	// Those that work for queues, and are told before any starts which come and go; nil if there are none.
	outboxes *Outboxes
	inlets   *Inlets

	mu     sync.Mutex
	config Config // Config.Config is the one in force
	places map[string]*place
	ran    map[string]bool // names of the queues that have run as config.Instance
	ctx    context.Context //nolint:containedctx // Queues that come later run in it. It is nil until Start.
	// stopped: nothing starts any more.
	stopped  bool
	draining sync.WaitGroup // of queues that leave their places
}

// NewQueues makes them; it does no I/O.
func NewQueues(cfg Config) (*Queues, error) {
	set := &Queues{
		windows: map[string]*window.Window{}, batcher: conn.NewBatcher(cfg.Redis),
		memory: upkeep.NewMemory(cfg.Redis, cfg.Metrics), hints: hints.New(cfg.Redis),
		gate:   health.NewGate(cfg.Redis, cfg.Health, cfg.Logger.With("instance", cfg.Config.Instance)),
		config: cfg, places: map[string]*place{}, ran: map[string]bool{},
	}
	for sink := range cfg.Config.Sinks {
		set.windows[sink] = window.New()
		cfg.Metrics.AddWindow(sink, set.windows[sink])
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Config.Queues)) {
		q, err := newQueue(cfg, set, name)
		if err != nil {
			return nil, fmt.Errorf("queue %s: %w", name, err)
		}
		set.places[name], set.ran[name] = &place{running: q}, true
	}
	set.show()
	return set, nil
}

// Start begins in the background.
func (set *Queues) Start(ctx context.Context) {
	ctx, set.cancel = context.WithCancel(context.WithoutCancel(ctx))
	set.done.Go(func() { set.hints.Run(ctx) })
	set.done.Go(func() { set.gate.Run(ctx, set.config.Fatal) })
	set.done.Go(func() { set.memory.Run(ctx) })
	set.mu.Lock()
	defer set.mu.Unlock()
	set.ctx = ctx
	for _, p := range set.places {
		p.running.start(ctx)
	}
}

// Stop drains all queues at once, within the drain timeout.
func (set *Queues) Stop(ctx context.Context) error {
	set.mu.Lock()
	set.stopped = true
	var running []*queue
	for _, p := range set.places {
		if !p.isDraining {
			running = append(running, p.running)
		}
	}
	set.mu.Unlock()
	problems := make([]error, len(running))
	var draining sync.WaitGroup
	for i, q := range running {
		draining.Go(func() { problems[i] = q.stop(ctx) })
	}
	draining.Wait()
	set.draining.Wait() // They have begun before, and have no more time.
	set.cancel()
	set.done.Wait()
	return errors.Join(problems...)
}

// all are the queues that run, those that drain among them, in the order of their names.
func (set *Queues) all() (queues []*queue) {
	set.mu.Lock()
	defer set.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(set.places)) {
		queues = append(queues, set.places[name].running)
	}
	return queues
}

// find returns the queue of that name, or the one that follows it as soon as it has drained; nil if
// there is none.
func (set *Queues) find(name string) *queue {
	set.mu.Lock()
	defer set.mu.Unlock()
	return set.places[name].newest()
}

// Config is the configuration in force.
func (set *Queues) Config() *config.Config {
	set.mu.Lock()
	defer set.mu.Unlock()
	return set.config.Config
}

// Used are the queues as the API and the inlets use them, by name. Nobody changes the map.
func (set *Queues) Used() map[string]*operate.Queue { return *set.used.Load() }

// Live returns an error if a loop hangs.
func (set *Queues) Live() error {
	var problems []error
	for _, q := range set.all() {
		if p := q.poller.Load(); p != nil {
			problems = append(problems, p.Live())
		}
	}
	return errors.Join(problems...)
}

// Checks returns the lines of /readyz about the queues' durability.
func (set *Queues) Checks() (checks []admin.Check) {
	for _, q := range set.all() {
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
