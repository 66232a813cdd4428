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
	// overdueEvery is how often those are looked at.
	overdueEvery = 30 * time.Second
	// auditEvery is how often rows are compared in turn, and leastTurn how long it takes
	// at the least to compare all of them.
	auditEvery, leastTurn = time.Second, 10 * time.Second
	// askMine is how often it is asked whose the queue is, where it is another's.
	askMine = time.Second
)

// watch audits one queue in one database.
type watch struct {
	*Auditor
	db    *table.Database
	queue *Queue

	mu   sync.Mutex
	stop context.CancelFunc // ends what it does now; nil: nothing
}

// disturb has it compare all rows anew.
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
// reports false where it was disturbed.
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
	w.log.Log(ctx, level, "outbox has compared all rows with redis", "event", "outbox_audited", "queue", w.queue.Name, "looked", c.Looked,
		"put_back", c.PutBack, "there", c.There, "settled", c.Settled, "skipped", c.Skipped, "blocked", c.Blocked,
		"seconds", time.Since(began).Seconds())
	return wait.Sleep(ctx, w.config.second-time.Since(began)) && w.pass().run(ctx) == nil
}

// inTurn compares overdue rows, and all others in turn, until it is disturbed or the
// queue is another's.
func (w *watch) inTurn(ctx context.Context) {
	rounds, behind := w.rounds(), w.db.Stored().Behind()
	turn := w.pass()
	turn.after = behind       // What is before is overdue.
	began := time.Now()       // of this turn
	before := began           // of the one before
	var opening time.Duration // of this turn: its first step finds the beginning
	for pause := auditEvery; wait.Sleep(ctx, pause); {
		if w.queue.Mine != nil && !w.queue.Mine() {
			return
		}
		most := w.config.Rate - w.stepOverdue(ctx, rounds, time.Since(before))
		pause = auditEvery
		first, stepped := turn.after == behind, time.Now()
		_, end := turn.step(ctx, max(1, most))
		if first {
			opening = time.Since(stepped)
		}
		if end {
			pause = max(auditEvery, leastTurn-time.Since(began), wait.Rest(opening))
			turn.after, before, began = behind, began, time.Now().Add(pause)
		}
	}
}

// round goes through overdue rows, a step at a time, again and again. However many
// of them stay overdue, the others have their turn.
type round struct {
	*pass
	from, to table.Cursor
	next     time.Time // when its next step is due
	// left is how many of this round are still overdue, told how many were of the one
	// before.
	left, told int
}

// rounds are those of the watch: what is due at 0 is one of its own where it stands
// among other rows, so that these do not delay the rest.
func (w *watch) rounds() []*round {
	behind := w.db.Stored().Behind()
	list := []*round{{from: behind, to: table.Cursor{Ms: table.MaxDueMs}}}
	if behind != (table.Cursor{}) {
		list = append(list, &round{to: behind})
	}
	for _, r := range list {
		r.pass = w.pass()
		r.overdue, r.after = true, r.from
	}
	return list
}

// stepOverdue goes on with the rounds that are due, and returns how many rows it has
// compared: half of the rate at the most.
func (w *watch) stepOverdue(ctx context.Context, rounds []*round, oldest time.Duration) (compared int) {
	overdue, stepped := 0, false
	for _, r := range rounds {
		if !time.Now().Before(r.next) {
			stepped = true
			compared += r.step(ctx, max(1, w.config.Rate/2/len(rounds)))
		}
		overdue += max(r.left, r.told)
	}
	if stepped && w.config.Watch != nil {
		w.config.Watch(w.queue.Name, overdue, oldest)
	}
	return compared
}

// step compares the next rows of the round, at most so many, and returns how many they
// were.
func (r *round) step(ctx context.Context, most int) int {
	r.report = &report{observe: r.config.Observe}
	began := time.Now()
	n, end := r.pass.step(ctx, most)
	r.left += n - r.report.mended()
	rest := wait.Rest(time.Since(began))
	if end || r.after == r.to {
		r.after, r.told, r.left, rest = r.from, r.left, 0, max(r.config.overdue, rest)
	}
	r.next = began.Add(rest)
	return n
}
