package auditor

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

const (
	// overdueAfter is how long after it was due a row is overdue whose message has
	// not ended.
	overdueAfter = 30 * time.Second
	// overdueEvery is the interval between rounds of overdue rows.
	overdueEvery = 30 * time.Second
	// auditEvery is the interval between steps of the turn, leastTurn the shortest time for
	// comparing all rows.
	auditEvery, leastTurn = time.Second, 10 * time.Second
	// askMine is the interval between checks of who audits the queue, while another instance does.
	askMine = time.Second
)

// watch audits one queue in one database.
type watch struct {
	*Auditor
	db    *table.Database
	queue *Queue
	end   context.CancelFunc // ends it; nil before it begins

	mu   sync.Mutex
	stop context.CancelFunc // ends what it does now; nil: nothing
}

// disturb makes it compare all rows again.
func (w *watch) disturb() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stop != nil {
		w.stop()
	}
}

// disturbed sets what disturb ends.
func (w *watch) disturbed(stop context.CancelFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop = stop
}

// begin audits until ctx ends, or until the auditor ends it, which calls begin with its mutex held.
func (w *watch) begin(ctx context.Context, working *sync.WaitGroup) {
	ctx, w.end = context.WithCancel(ctx)
	working.Go(func() {
		defer w.end()
		w.run(ctx)
		if w.config.Unwatch != nil && len(w.watching(w.queue.Name)) == 0 {
			w.config.Unwatch(w.queue.Name)
		}
	})
}

// run audits until ctx ends.
func (w *watch) run(ctx context.Context) {
	for ctx.Err() == nil {
		if w.queue.Mine != nil && !w.queue.Mine() {
			if w.config.Unwatch != nil {
				w.config.Unwatch(w.queue.Name)
			}
			wait.Sleep(ctx, askMine)
			continue
		}
		undisturbed, stop := context.WithCancel(ctx)
		w.disturbed(stop)
		if w.compareAll(undisturbed) {
			w.inTurn(undisturbed)
		}
		w.disturbed(nil)
		stop()
	}
}

// pass is one by the watch.
func (w *watch) pass() *pass {
	return &pass{Auditor: w.Auditor, db: w.db, queue: w.queue, report: &report{observe: w.config.Observe}}
}

// compareAll compares all rows at full speed, and once more a while later. It
// reports false if it was disturbed.
func (w *watch) compareAll(ctx context.Context) bool {
	began := time.Now()
	w.flush(ctx)
	p := w.pass()
	w.log.InfoContext(ctx, "outbox compares all rows with redis", "event", "outbox_audit_begins", "queue", w.queue.Name)
	if p.run(ctx) != nil || ctx.Err() != nil {
		return false
	}
	c := p.report.counts
	level := slog.LevelInfo
	if c.PutBack > 0 {
		level = slog.LevelWarn
	}
	fields := []any{"event", "outbox_audited", "queue", w.queue.Name}
	c.Each(func(result string, count int64) { fields = append(fields, result, count) })
	w.log.Log(ctx, level, "outbox has compared all rows with redis", append(fields, "seconds", time.Since(began).Seconds())...)
	return wait.Sleep(ctx, w.config.second-time.Since(began)) && w.pass().run(ctx) == nil
}

// inTurn compares overdue rows, and all others in turn, until it is disturbed or the
// queue is another's.
func (w *watch) inTurn(ctx context.Context) {
	t := newTurns(w.config.Rate, w.config.overdue, w.db.Stored().Behind(), time.Now())
	p := w.pass()
	for wait.Sleep(ctx, auditEvery) {
		if w.queue.Mine != nil && !w.queue.Mine() {
			return
		}
		for r, most := t.next(time.Now()); r != nil; r, most = t.next(time.Now()) {
			p.begin(r.overdue, r.after)
			began := time.Now()
			n, end := p.step(ctx, most)
			t.stepped(r, began, time.Now(), n, p.report.mended(), p.after, end)
			if overdue, oldest := t.overdue(time.Now()); r.overdue && w.config.Watch != nil {
				w.config.Watch(w.queue.Name, overdue, oldest)
			}
		}
	}
}
