// Package runner runs the queues and outboxes of a configuration: it makes the parts of
// each, starts them in the order of their dependencies, applies reloads, and drains.
//
// The parts are in packages of their own; the caller of [NewQueues] provides what they
// share, such as the client of Redis.
package runner

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/seal"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/hints"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	storerecurring "github.com/delaybridge/delaybridge/internal/engine/store/recurring"
	"github.com/delaybridge/delaybridge/internal/jobs"
	"github.com/delaybridge/delaybridge/internal/membership"
	"github.com/delaybridge/delaybridge/internal/operate"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/settler"
	"github.com/delaybridge/delaybridge/internal/poller"
	"github.com/delaybridge/delaybridge/internal/recurring"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/telemetry"
	"github.com/delaybridge/delaybridge/internal/upkeep"
)

// queue runs one queue: after the check of Redis, its member makes the layout
// and keeps the poller at its share of the shards. It owns the goroutine run.
type queue struct {
	store   *store.Queue
	member  *membership.Member
	newPoll func() (*poller.Poller, error)
	// opened is closed when Redis was checked.
	opened     <-chan struct{}
	jobs       *jobs.Runner
	recurring  *recurring.Planner
	rooms      *upkeep.Rooms
	durability *upkeep.Durability // nil if nothing is to confirm
	// beside are the functions that run from when the layout is made until the end.
	beside  []func(ctx context.Context)
	drain   time.Duration // bounds the wait for acknowledgements at a stop
	metrics *telemetry.Metrics
	logger  *slog.Logger
	fatal   func(error)

	// inForce is replaced as a whole when the configuration changes; under changing, the
	// poller gets it, too.
	inForce  atomic.Pointer[config.Queue]
	changing sync.Mutex

	// used is the queue as the API uses it. It is replaced as a whole, under the lock of the set.
	used *operate.Queue

	cancel context.CancelFunc
	done   sync.WaitGroup
	// poller is nil until the layout is made; then made is closed.
	poller atomic.Pointer[poller.Poller]
	made   chan struct{}

	// rows gets the results of outbox messages from the pollers; nil without an outbox.
	rows *settler.Settler
	// reborn, if not nil, is called when Redis has lost the queue.
	reborn func()
}

func newQueue(all Config, set *Queues, name string) (*queue, error) {
	cfg := all.Config.Queues[name]
	sink := all.Config.Sinks[cfg.Sink].Type
	q := &queue{
		store:  store.NewWithTimeout(all.Redis, all.Config.Prefix, name, all.Config.Redis.Timeout).WithBatcher(set.batcher).WithDurability(cfg.Confirmation()),
		opened: set.gate.Opened(), made: make(chan struct{}), drain: all.Config.DrainTimeout, metrics: all.Metrics, fatal: all.Fatal,
		logger: all.Logger.With("queue", name, "instance", all.Config.Instance),
	}
	clients, err := all.Config.Clients(all.Redis, name, all.Keys, delay.WithTracerProvider(all.Traces.Provider()))
	if err != nil {
		return nil, err
	}
	q.used = &operate.Queue{
		Name: name, Sink: cfg.Sink, Owner: cfg.Owner, Contacts: cfg.Contacts, Since: time.Now(), Clients: clients,
		// It shares no pipelines with the pollers.
		Store: store.NewWithTimeout(all.Redis, all.Config.Prefix, name, all.Config.Redis.Timeout).WithDurability(cfg.Confirmation()),
	}
	q.inForce.Store(&cfg)
	q.jobs = jobs.New(job.New(q.store), all.Instance, q.logger)
	q.recurring = recurring.New(name, storerecurring.New(q.store, cfg.Confirmation()), q.isFirst, all.Metrics, q.logger)
	q.member = membership.New(membership.Config{
		Queue: name, Instance: all.Instance, Lease: all.Config.Poller.Lease,
		Want:  cfg.Layout(sink),
		Store: q.store.Members(), Registry: q.store.Layouts(), Keeper: q.store.NewKeeper(), Observer: all.Metrics, Logger: q.logger,
		Heard: all.Health.Heard, Hear: q.hear(set.hints), Reborn: q.wasReborn,
	})
	published, err := q.keepUp(all, set.memory)
	if err != nil {
		return nil, err
	}
	hooks := poller.Hooks{
		OnNoLayout: func(ctx context.Context, _ int) { q.member.NoMeta(ctx) },
		OnEpoch:    q.member.SawEpoch, OnLateAcks: q.lateAcks,
		OnPublished: both(all.Traces.Publishing(name, sink), published),
	}
	q.newPoll = func() (*poller.Poller, error) {
		return poller.New(q.polling(all, set, hooks))
	}
	return q, nil
}

// keepUp makes the parts that run beside the poller. It returns the hook for
// published messages; nil if nobody needs it.
func (q *queue) keepUp(all Config, memory *upkeep.Memory) (published publishedHook, err error) {
	kept := &upkeep.Queue{Store: q.store, Config: q.inForce.Load, IsKeeper: q.member.IsKeeper, Metrics: all.Metrics, Logger: q.logger}
	budget := upkeep.NewBudget(kept)
	q.rooms = upkeep.NewRooms(kept, budget, memory)
	q.beside = append(q.beside, q.jobs.Run, q.recurring.Run, budget.Run, q.rooms.Run, upkeep.NewDeadLimits(kept).Run)
	cfg := q.inForce.Load()
	if cfg.Confirmation().IsSet() {
		q.durability = upkeep.NewDurability(kept)
		q.beside = append(q.beside, q.durability.Run)
	}
	if cfg.Canary.Topic == "" {
		return nil, nil
	}
	client, err := delay.NewClient(all.Redis, q.store.Name(), append(all.Config.ClientOptions(all.Keys), delay.WithConflict(delay.Keep))...)
	if err != nil {
		return nil, err
	}
	canary := upkeep.NewCanary(kept, client)
	q.beside = append(q.beside, canary.Run)
	return canary.Published, nil
}

// publishedHook is called for each message that was given to the sink.
type publishedHook = func(claimed *message.ClaimedMessage, began time.Time, report *sinks.Report, lateness time.Duration)

// both calls one after the other; either may be nil.
func both(first, second publishedHook) publishedHook {
	if first == nil {
		return second
	}
	if second == nil {
		return first
	}
	return func(claimed *message.ClaimedMessage, began time.Time, report *sinks.Report, lateness time.Duration) {
		first(claimed, began, report, lateness)
		second(claimed, began, report, lateness)
	}
}

// polling returns the poller's configuration.
func (q *queue) polling(all Config, set *Queues, hooks poller.Hooks) poller.Config {
	cfg := q.inForce.Load()
	claims := all.Config.Poller
	return poller.Config{
		Queue: q.store.Name(), Instance: all.Instance, Store: func(shard int) poller.Store { return q.store.Shard(shard) },
		Sink: poller.Sink{
			Sink: all.Sinks[cfg.Sink], Name: cfg.Sink, Timeout: all.Config.Sinks[cfg.Sink].PublishTimeout, Window: set.windows[cfg.Sink],
			Open: func(m *message.Message) error { return seal.Open(all.Keys, m) },
		},
		Claims: poller.Claims{
			Batch: claims.Batch, InFlight: claims.InFlight, Timeout: claims.ClaimTimeout, MaxSleep: claims.MaxSleep, Lease: claims.Lease,
			Durable: cfg.Confirmation().IsSet(),
		},
		Policy: policy(cfg), Places: cfg.History.Count > 0, Topics: q.store.Topics(), Bucket: q.store.Members(),
		Logger: all.Logger, Observer: all.Metrics, Hooks: hooks,
	}
}

// policy returns the part of a queue's configuration that the poller gets, again at each change.
func policy(cfg *config.Queue) poller.Policy {
	return poller.Policy{
		Retry:        poller.Retry{Initial: cfg.Retry.Initial, Max: cfg.Retry.Max, Attempts: cfg.Retry.Attempts},
		ParkPatience: cfg.ParkPatience, Late: message.Late(cfg.Late), Minimal: cfg.Headers == config.MinimalHeaders,
		Rates: poller.Rates{Messages: cfg.Rate.Messages, Topics: cfg.Rate.ByTopic()},
	}
}

// start begins in the background: an unreachable Redis is no reason to fail.
func (q *queue) start(ctx context.Context) {
	q.metrics.AddQueue(q.store.Name())
	q.follow(q.inForce.Load())
	ctx, q.cancel = context.WithCancel(context.WithoutCancel(ctx))
	q.done.Go(func() {
		if err := q.run(ctx); err != nil {
			q.fatal(err)
		}
	})
}

// stop ends the heartbeats, tells the other instances, which begin at once to
// wait for our shards, and drains, all within the drain timeout.
func (q *queue) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, q.drain)
	defer cancel()
	q.cancel()
	q.done.Wait()
	p := q.poller.Load()
	if p == nil {
		return nil
	}
	q.member.Leave(ctx)
	if err := p.Stop(ctx); err != nil {
		return fmt.Errorf("drain queue %s: %w", q.store.Name(), err)
	}
	return nil
}

// run polls until ctx ends. The polling continues after that, until stop ends it.
func (q *queue) run(ctx context.Context) error {
	select {
	case <-q.opened:
	case <-ctx.Done():
		return nil
	}
	layout, err := q.member.Prepare(ctx)
	if err != nil {
		return nil //nolint:nilerr // It is the end of ctx.
	}
	close(q.made)
	for _, run := range q.beside {
		q.done.Go(func() { run(ctx) })
	}
	p, err := q.newPoll()
	if err == nil {
		err = p.Start(ctx)
	}
	if err != nil {
		return err
	}
	q.polls(p)
	q.logger.Info("polling", "event", "start", "shards", layout.Shards, "earlier", fmt.Sprint(layout.Earlier), "epoch", layout.Epoch)
	return q.member.Run(ctx, memberPoller{p})
}

// memberPoller adapts the poller to the member.
type memberPoller struct{ *poller.Poller }

// Gains implements [membership.Poller].
func (a memberPoller) Gains() membership.Gains { return membership.Gains(a.Poller.Gains()) }

// polls records the poller, and gives it the policy, which may have changed since it was made.
func (q *queue) polls(p *poller.Poller) {
	q.changing.Lock()
	defer q.changing.Unlock()
	q.poller.Store(p)
	p.Change(policy(q.inForce.Load()))
}

// change gives the queue another configuration, which differs only in changeable keys.
// Parts other than the poller read it at their next turn.
func (q *queue) change(cfg *config.Queue) {
	q.changing.Lock()
	defer q.changing.Unlock()
	used := *q.used
	used.Owner, used.Contacts, used.Since = cfg.Owner, cfg.Contacts, time.Now()
	q.used = &used
	q.follow(cfg)
	if p := q.poller.Load(); p != nil {
		p.Change(policy(cfg))
	}
}

// declaredIn notes which file declares the queue. Another one may come to declare the same, which changes nothing else.
func (q *queue) declaredIn(file string) {
	if file == q.used.File {
		return
	}
	used := *q.used
	used.File, used.Since = file, time.Now()
	q.used = &used
}

// follow stores the configuration in force, and tells the metrics.
func (q *queue) follow(cfg *config.Queue) {
	q.inForce.Store(cfg)
	q.metrics.RateLimit(q.store.Name(), cfg.Rate.Messages, cfg.Rate.ByTopic())
	q.metrics.QueueInfo(q.store.Name(), cfg.Owner)
}

// hear subscribes to the hints of the shards. A hint of a change may also mean a job, or a recurring schedule.
func (q *queue) hear(subscriber *hints.Subscriber) func(shards []int, changed func()) {
	return func(shards []int, changed func()) {
		all := func() { changed(); q.jobs.Wake(); q.recurring.Wake() }
		subscriber.Set(q.store.Keys(), shards, hints.Listener{Wake: q.poller.Load().Wake, Changed: all})
	}
}

// wasReborn is called when Redis has lost the queue.
func (q *queue) wasReborn() {
	if q.reborn != nil {
		q.reborn()
	}
}

// polled returns the shards that this instance polls now.
func (q *queue) polled() []int {
	if p := q.poller.Load(); p != nil {
		return p.Shards()
	}
	return nil
}

// isFirst reports whether this instance polls the queue's first shard, and so does the work
// that one instance does for the queue. If two do it for a moment, the work is only done twice.
func (q *queue) isFirst() bool { return slices.Contains(q.polled(), 0) }

// asOutbox returns the view of the queue for relays and auditors.
func (q *queue) asOutbox(sink message.SinkType) outbox.Queue {
	return outbox.Queue{
		Name: q.store.Name(), Store: outbox.NewStore(q.store.Rows()), Sink: sink, MaxMessage: int(q.inForce.Load().MaxMessage),
	}
}

// asLedger returns the view of the queue for the settler.
func (q *queue) asLedger() settler.Queue {
	return settler.Queue{Name: q.store.Name(), Store: q.store.Rows(), Held: q.polled}
}

// tellRows connects the queue to the settler, which gets the results of rows' messages,
// and to the auditor, which learns of losses of Redis. Call it before the queue starts.
func (q *queue) tellRows(rows *settler.Settler, reborn func(queue string)) {
	name := q.store.Name()
	q.rows, q.reborn = rows, func() { reborn(name) }
	q.store.WithLedger(func(shard int) { rows.Notify(name, shard) })
}

// lateAcks receives acknowledgements that came too late for Redis.
func (q *queue) lateAcks(acked []message.ClaimedMessage) {
	if q.rows == nil {
		return
	}
	rows := make([]store.RowFate, len(acked))
	for i, m := range acked {
		rows[i] = store.RowFate{Token: m.Token, ID: m.ID, Key: m.Key, What: store.FatePublished}
	}
	q.rows.Acknowledged(q.store.Name(), rows)
}
