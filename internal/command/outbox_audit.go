package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/auditor"
	"github.com/delaybridge/delaybridge/internal/outbox/settler"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// auditPatience is how long an audit may make no progress.
const auditPatience = 60 * time.Second

var errStalled = fmt.Errorf("no progress for %v: Redis or the database does not answer", auditPatience)

type outboxAuditCommand struct {
	outboxFlags
	Queue  string `placeholder:"QUEUE" help:"Only this queue. Default: all of them."`
	All    bool   `help:"All rows, and then all messages in Redis. Default: rows that are overdue."`
	DryRun bool   `help:"Only count what it would change."`
}

func (outboxAuditCommand) Help() string {
	return `Compares rows with Redis: it puts back a message that Redis should have but lacks (marked as maybe published if it was due),
and if a message in Redis dates from before a reschedule, replaces it by what its row says. With --all it also compares Redis
with the rows, and removes messages that have ended by their rows. It does no harm beside running bridges and producers. Bridges
audit all the time; run it by hand to know at once, or after Redis was restored to an earlier state.

Example:

    bridge outbox audit --config bridge.yaml --all --dry-run`
}

func (c outboxAuditCommand) Run(p *program) error {
	cfg, names, err := c.load(p)
	if err != nil {
		return err
	}
	if c.Queue != "" {
		if err := isKnown("queue", c.Queue, c.Config, cfg.Queues); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancelCause(p.ctx)
	defer cancel(nil)
	r := &auditRun{program: p, asJSON: c.json(), all: c.All, dry: c.DryRun, config: cfg, ctx: ctx, databases: map[string]*table.Database{}}
	r.stalled = time.AfterFunc(auditPatience, func() { cancel(errStalled) })
	defer r.close()
	if err := r.open(c.Config, c.Queue); err != nil {
		return err
	}
	for _, name := range names {
		if err := r.run(name); err != nil {
			return err
		}
	}
	return nil
}

// auditRun is an audit by hand.
type auditRun struct {
	*program
	asJSON, all bool
	dry         bool
	config      *config.Config
	ctx         context.Context
	stalled     *time.Timer

	rdb       redis.UniversalClient
	databases map[string]*table.Database
	queues    []*store.Queue
	settler   *settler.Settler
}

func (r *auditRun) close() {
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
func (r *auditRun) open(file, only string) (err error) {
	if r.rdb, err = r.config.Redis.Open(r.config.Instance); err != nil {
		return err
	}
	if err := connect(r.ctx, r.rdb, serverName(r.config.Redis)); err != nil {
		return err
	}
	var databases []settler.Database
	for _, name := range slices.Sorted(maps.Keys(r.config.Outbox)) {
		cfg := r.config.Outbox[name]
		db, err := openOutbox(r.ctx, name, file, cfg)
		if err != nil {
			return err
		}
		r.databases[name] = db
		databases = append(databases, settler.Database{Database: db})
	}
	var ledgers []settler.Queue
	for _, name := range slices.Sorted(maps.Keys(r.config.Queues)) {
		if only != "" && name != only {
			continue
		}
		queue := store.New(r.rdb, r.config.Prefix, name)
		layout, err := queue.AwaitLayout(r.ctx)
		if err != nil {
			return of("audit", name, "", err)
		}
		shards := make([]int, layout.Polled())
		for i := range shards {
			shards[i] = i
		}
		r.queues = append(r.queues, queue)
		ledgers = append(ledgers, settler.Queue{Name: name, Store: queue.Rows(), Held: func() []int { return shards }})
	}
	r.settler, err = settler.New(settler.Config{Databases: databases, Queues: ledgers})
	return err
}

// checkLife reports where the rows belong to another Redis: what is not in ours is not lost.
func (r *auditRun) checkLife(name string, q *store.Queue) error {
	rows, err := r.databases[name].Lives().Of(r.ctx, q.Name())
	if err != nil {
		return databaseAway(name, err)
	}
	layout, err := q.Layout(r.ctx)
	switch {
	case err != nil:
		return of("audit", q.Name(), "", err)
	case rows.Name == "" || rows.Name == layout.Life():
		return nil
	}
	return &failure{
		code: "other_redis", exit: exitRefused, id: q.Name(), text: fmt.Sprintf("outbox %s: %v", name, outbox.CheckLife(q.Name(), layout.Life(), rows.Name, rows.Silent)),
		hint: "where this Redis is the right one: `bridge outbox adopt`",
	}
}

// run audits one outbox, queue by queue.
func (r *auditRun) run(name string) error {
	queues := make([]auditor.Queue, len(r.queues))
	for i, q := range r.queues {
		cfg := r.config.Queues[q.Name()]
		queues[i] = auditor.Queue{
			Queue: outbox.Queue{
				Name: q.Name(), Store: outbox.NewStore(q.Rows()), Sink: r.config.Sinks[cfg.Sink].Type, MaxMessage: int(cfg.MaxMessage),
			},
		}
	}
	var others []*table.Database
	for other, db := range r.databases {
		if other != name {
			others = append(others, db)
		}
	}
	audit, err := auditor.New(auditor.Config{
		Databases: []*table.Database{r.databases[name]}, Others: others, Queues: queues, Flush: r.settler.Flush,
		Logger: telemetry.NewLogger(r.stderr, slog.LevelWarn, "text"),
	})
	if err != nil {
		return err
	}
	for _, q := range r.queues {
		var total int64 // 0: progress is shown without an end.
		if r.all {
			total, _ = r.databases[name].Stored().Count(r.ctx, []string{q.Name()})
		}
		if err := r.checkLife(name, q); err != nil {
			return err
		}
		progress := newProgressBar(r.stderr, q.Name(), "row")
		counts, err := audit.Audit(r.ctx, q.Name(), r.all, r.dry, func(c auditor.Counts) {
			r.stalled.Reset(auditPatience)
			progress.show(c.Looked, total, fmt.Sprintf("%d put back", c.PutBack))
		})
		progress.end()
		if err != nil {
			err = r.fail(q.Name(), counts, err)
		}
		if !r.dry {
			done := operate.Tally{"put_back": int(counts.PutBack), "settled": int(counts.Settled), "removed": int(counts.Removed)}.String()
			writeDown(r.program, r.asJSON, q, &inspect.Change{Action: "outbox audit", What: name, Answer: answerOf(done, err)})
		}
		if err != nil {
			return err
		}
		if err := r.print(name, q.Name(), counts); err != nil {
			return err
		}
	}
	return nil
}

func (r *auditRun) fail(queue string, counts auditor.Counts, err error) error {
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

// auditJSON is what was done, as programs see it.
type auditJSON struct {
	Outbox string `json:"outbox"`
	Queue  string `json:"queue"`
	DryRun bool   `json:"dry_run"`
	auditor.Counts
}

func (r *auditRun) print(name, queue string, c auditor.Counts) error {
	if r.asJSON {
		return writeJSON(r.stdout, auditJSON{name, queue, r.dry, c})
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
