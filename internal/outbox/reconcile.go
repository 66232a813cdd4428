package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/store"
)

// Reconcilable is what the reconciler needs of one queue in Redis. The methods
// are those of [store.Rows], and documented there.
type Reconcilable interface {
	Put(ctx context.Context, rows []store.Row) []store.Answer
	Peek(ctx context.Context, rows []store.Row) []store.Answer
	LoadLayout(ctx context.Context) (*store.Layout, error)
	RowsPage(ctx context.Context, shard int, cursor string, most int) (rows []store.SettledRow, next string, bytes int, err error)
	Remove(ctx context.Context, rows []store.SettledRow) (removed int, err error)
	Clock(ctx context.Context) (time.Time, error)
}

// ReconciledQueue is a queue whose rows are compared with Redis.
type ReconciledQueue struct {
	// Queue is as the relay has it, but for its store.
	Queue
	Redis Reconcilable
}

// ReconcilerConfig describes a [Reconciler].
type ReconcilerConfig struct {
	// Databases are those whose rows are kept until their messages are published.
	Databases []*Database
	Queues    []ReconciledQueue
	// Flush settles what this bridge knows by now, see [Settler.Flush].
	Flush func(ctx context.Context) error
	// Horizon is that of the relays, default 1 h.
	Horizon time.Duration
	// Observe, where not nil, is told what each step has found. It is called from
	// several goroutines.
	Observe func(Counts)
	// Logger defaults to none.
	Logger *slog.Logger

	// For tests: how long to wait before the second look, and for flushing.
	second, grace time.Duration
}

// Counts are what a reconciliation has found, in messages.
type Counts struct {
	// Looked is how many rows say that Redis has their message.
	Looked int64 `json:"looked"`
	// PutBack are those that were missing, and are there again.
	PutBack int64 `json:"put_back"`
	// There are those that were there.
	There int64 `json:"there"`
	// Settled are rows whose message has ended, as Redis remembered.
	Settled int64 `json:"settled"`
	// Removed are messages in Redis that had ended, as their rows say.
	Removed int64 `json:"removed"`
	// Skipped are rows that somebody else works on, or will.
	Skipped int64 `json:"skipped"`
	// Blocked are those of which another message has the identity.
	Blocked int64 `json:"blocked"`
}

// Each calls f for each of the counts, with its name.
func (c *Counts) Each(f func(result string, count int64)) {
	f("looked", c.Looked)
	f("put_back", c.PutBack)
	f("there", c.There)
	f("settled", c.Settled)
	f("removed", c.Removed)
	f("skipped", c.Skipped)
	f("blocked", c.Blocked)
}

func (c *Counts) add(o Counts) {
	c.Looked += o.Looked
	c.PutBack += o.PutBack
	c.There += o.There
	c.Settled += o.Settled
	c.Removed += o.Removed
	c.Skipped += o.Skipped
	c.Blocked += o.Blocked
}

// Reconciler compares what the rows say with what Redis has. Messages that are
// missing are put back under their rows' tokens; messages that have ended, as a
// row says, are removed. It holds no locks on rows, and may run beside
// everything else and beside others of its kind. It is safe for concurrent use.
type Reconciler struct {
	config ReconcilerConfig
	log    *slog.Logger
	away   *outage
	wake   chan struct{}

	mu    sync.Mutex
	lives map[lifeOf]string // those that rows were reconciled with
}

// NewReconciler returns a reconciler; [Reconciler.Run] lets it work by itself.
func NewReconciler(config ReconcilerConfig) (*Reconciler, error) {
	if len(config.Databases) == 0 || len(config.Queues) == 0 {
		return nil, errors.New("a reconciler needs a database and a queue")
	}
	setDefault(&config.Horizon, defaultHorizon)
	setDefault(&config.second, secondLook)
	setDefault(&config.grace, graceBefore)
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Flush == nil {
		config.Flush = func(context.Context) error { return nil }
	}
	log := config.Logger.With("component", "outbox")
	return &Reconciler{
		config: config, log: log, away: &outage{log: log, what: "reconcile", text: "database or redis (reconciling)"},
		wake: make(chan struct{}, 1), lives: map[lifeOf]string{},
	}, nil
}

// ErrNoQueue is returned for a queue that the reconciler does not have.
var ErrNoQueue = errors.New("no such queue with an outbox")

// Reconcile compares all rows of a queue with Redis, or those of all queues
// where the name is empty. A dry run only counts. progress, where not nil, is
// told the counts so far, from one goroutine at a time. While something is away
// it waits, until ctx ends. Rows that are skipped, because operations are
// pending, are left to the relay.
func (r *Reconciler) Reconcile(ctx context.Context, queue string, dryRun bool, progress func(Counts)) (Counts, error) {
	if !dryRun {
		r.flush(ctx)
	}
	report := &report{progress: progress, observe: r.config.Observe}
	found := false
	for i := range r.config.Queues {
		q := &r.config.Queues[i]
		if queue != "" && q.Name != queue {
			continue
		}
		found = true
		for _, d := range r.config.Databases {
			p := &pass{Reconciler: r, db: d, queue: q, dry: dryRun, report: report}
			if err := p.run(ctx); err != nil {
				return report.counts, fmt.Errorf("reconcile %s: %w", q.Name, err)
			}
		}
		if err := r.removeEnded(ctx, q, dryRun, report); err != nil {
			return report.counts, fmt.Errorf("reconcile %s: %w", q.Name, err)
		}
	}
	if !found {
		return Counts{}, fmt.Errorf("%w: %q", ErrNoQueue, queue)
	}
	return report.counts, nil
}

// flush has the settler write what it knows: first what this bridge's pollers
// are about to tell it.
func (r *Reconciler) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if !sleep(ctx, r.config.grace, nil) {
		return
	}
	if err := r.config.Flush(ctx); err != nil {
		r.log.WarnContext(ctx, "outbox reconciles without all acknowledgements: some messages may be published twice",
			"event", "outbox_reconcile_unflushed", "err", err)
	}
}

// report sums up what several passes count.
type report struct {
	mu       sync.Mutex
	counts   Counts
	progress func(Counts)
	observe  func(Counts)
}

func (r *report) add(c Counts) {
	if r.observe != nil {
		r.observe(c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.add(c)
	if r.progress != nil {
		r.progress(r.counts)
	}
}
