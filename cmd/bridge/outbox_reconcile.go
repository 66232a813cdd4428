package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/app"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/store"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// reconcilePatience is how long a reconciliation may make no progress.
const reconcilePatience = 60 * time.Second

var errStalled = fmt.Errorf("no progress for %v: Redis or the database does not answer", reconcilePatience)

type outboxReconcileCommand struct {
	outboxFlags
	Queue  string `placeholder:"QUEUE" help:"Only this queue. Without it: all of them."`
	DryRun bool   `help:"Only count what would be done."`
}

func (outboxReconcileCommand) Help() string {
	return `Compares all rows of "until: published" with Redis: a message that Redis should have and has not is put back (marked as maybe
published, if it was due by then), and one that has ended, as its row says, is removed. Beside running bridges and producers it
does no harm. A bridge does it by itself when Redis was wiped; by hand it is for a Redis that was put back to an earlier state.

Example:

    bridge outbox reconcile --config bridge.yaml --dry-run`
}

func (c outboxReconcileCommand) Run(p *program) error {
	cfg, names, err := c.load(p)
	if err != nil {
		return err
	}
	if _, ok := cfg.Queues[c.Queue]; !ok && c.Queue != "" {
		return usagef("unknown queue %q: %s has %s", c.Queue, c.Config, strings.Join(slices.Sorted(maps.Keys(cfg.Queues)), ", "))
	}
	kept := slices.DeleteFunc(names, func(name string) bool { return cfg.Outbox[name].Until != config.UntilPublished })
	if len(kept) == 0 {
		return usagef("no outbox with \"until: published\" in %s: rows that are deleted when Redis has them tell nothing later", c.Config)
	}
	ctx, cancel := context.WithCancelCause(p.ctx)
	defer cancel(nil)
	r := &reconciling{program: p, asJSON: c.json(), dry: c.DryRun, config: cfg, ctx: ctx, databases: map[string]*outbox.Database{}}
	r.stalled = time.AfterFunc(reconcilePatience, func() { cancel(errStalled) })
	defer r.close()
	if err := r.open(c.Config, c.Queue); err != nil {
		return err
	}
	for _, name := range kept {
		if err := r.run(name); err != nil {
			return err
		}
	}
	return nil
}

// reconciling is a reconciliation by hand.
type reconciling struct {
	*program
	asJSON, dry bool
	config      *config.Config
	ctx         context.Context
	stalled     *time.Timer

	rdb       redis.UniversalClient
	databases map[string]*outbox.Database
	queues    []*store.Rows
	settler   *outbox.Settler
}

func (r *reconciling) close() {
	r.stalled.Stop()
	for _, db := range r.databases {
		_ = db.Close() // Nothing is pending.
	}
	if r.rdb != nil {
		_ = r.rdb.Close()
	}
}

// open connects to Redis and to all databases: what one of them does not know,
// another one may.
func (r *reconciling) open(file, only string) (err error) {
	if r.rdb, err = app.NewRedis(r.config.Redis, r.config.Instance); err != nil {
		return err
	}
	if err := connect(r.ctx, r.rdb, serverName(r.config.Redis)); err != nil {
		return err
	}
	var databases []outbox.Retention
	for _, name := range slices.Sorted(maps.Keys(r.config.Outbox)) {
		cfg := r.config.Outbox[name]
		db, err := openOutbox(r.ctx, name, file, cfg)
		if err != nil {
			return err
		}
		r.databases[name] = db
		databases = append(databases, outbox.Retention{Database: db, UntilPublished: cfg.Until == config.UntilPublished})
	}
	var ledgers []outbox.LedgerQueue
	for _, name := range slices.Sorted(maps.Keys(r.config.Queues)) {
		if only != "" && name != only {
			continue
		}
		queue := store.New(r.rdb, r.config.Prefix, name).Rows()
		layout, err := queue.AwaitLayout(r.ctx)
		if err != nil {
			return of("reconcile", name, "", err)
		}
		shards := make([]int, layout.Polled())
		for i := range shards {
			shards[i] = i
		}
		r.queues = append(r.queues, queue)
		ledgers = append(ledgers, outbox.LedgerQueue{Name: name, Store: queue, Held: func() []int { return shards }})
	}
	r.settler, err = outbox.NewSettler(outbox.SettlerConfig{Databases: databases, Queues: ledgers})
	return err
}

// run reconciles one outbox, queue by queue.
func (r *reconciling) run(name string) error {
	queues := make([]outbox.ReconciledQueue, len(r.queues))
	for i, q := range r.queues {
		cfg := r.config.Queues[q.Name()]
		queues[i] = outbox.ReconciledQueue{
			Queue: outbox.Queue{Name: q.Name(), Store: q, Sink: r.config.Sinks[cfg.Sink].Type, MaxMessage: int(cfg.MaxMessage)},
			Redis: q,
		}
	}
	reconciler, err := outbox.NewReconciler(outbox.ReconcilerConfig{
		Databases: []*outbox.Database{r.databases[name]}, Queues: queues, Flush: r.settler.Flush,
		Horizon: r.config.Outbox[name].Horizon, Logger: telemetry.NewLogger(r.stderr, "warn", "text"),
	})
	if err != nil {
		return err
	}
	for _, q := range r.queues {
		total, err := r.databases[name].StoredRows(r.ctx, []string{q.Name()})
		if err != nil {
			total = 0 // Then progress is shown without an end.
		}
		progress := newProgressBar(r.stderr, q.Name(), total)
		counts, err := reconciler.Reconcile(r.ctx, q.Name(), r.dry, func(c outbox.Counts) {
			r.stalled.Reset(reconcilePatience)
			progress.show(c)
		})
		progress.end()
		if err != nil {
			return r.fail(q.Name(), counts, err)
		}
		if err := r.print(name, q.Name(), counts); err != nil {
			return err
		}
	}
	return nil
}

func (r *reconciling) fail(queue string, counts outbox.Counts, err error) error {
	f := &failure{code: "failed", exit: exitFailed, cause: err}
	switch {
	case errors.Is(context.Cause(r.ctx), errStalled):
		f.code, err = "unavailable", errStalled
	case r.ctx.Err() != nil:
		f.code, err = "interrupted", r.ctx.Err()
	}
	f.text = fmt.Sprintf("queue %s: %v, after %d rows; it may be repeated", queue, err, counts.Looked)
	return f
}

// reconciledJSON is what was done, as programs see it.
type reconciledJSON struct {
	Outbox string `json:"outbox"`
	Queue  string `json:"queue"`
	DryRun bool   `json:"dry_run"`
	outbox.Counts
}

func (r *reconciling) print(name, queue string, c outbox.Counts) error {
	if r.asJSON {
		return writeJSON(r.stdout, reconciledJSON{name, queue, r.dry, c})
	}
	would := ""
	if r.dry {
		would = "to be "
	}
	_, err := fmt.Fprintf(r.stdout,
		"outbox %s, queue %s: %d rows; %d %sput back, %d there, %d %ssettled, %d left to the relay, %d blocked by other messages; %d %sremoved\n",
		name, queue, c.Looked, c.PutBack, would, c.There, c.Settled, would, c.Skipped, c.Blocked, c.Removed, would)
	return err
}
