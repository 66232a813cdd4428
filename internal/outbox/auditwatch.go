package outbox

import (
	"context"
	"log/slog"
	"time"
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

// watch audits one queue in one database until ctx ends.
func (a *Auditor) watch(ctx context.Context, q *AuditedQueue, d *Database) {
	for ctx.Err() == nil {
		if q.Mine != nil && !q.Mine() {
			sleep(ctx, askMine, nil)
			continue
		}
		hint := a.hint(q.Name)
		if !a.compareAll(ctx, q, d, hint) {
			continue // Something may be lost again, or it ends.
		}
		a.inTurn(ctx, q, d, hint)
	}
}

// compareAll compares all rows at full speed, and once more a while later. It
// reports false where something may have been lost meanwhile.
func (a *Auditor) compareAll(ctx context.Context, q *AuditedQueue, d *Database, hint context.Context) bool {
	ctx, cancel := untilDone(ctx, hint)
	defer cancel()
	began := time.Now()
	a.flush(ctx)
	p := &pass{Auditor: a, db: d, queue: q, report: &report{observe: a.config.Observe}}
	a.log.InfoContext(ctx, "outbox compares all rows with redis", "event", "outbox_audit_begins", "queue", q.Name)
	if p.run(ctx) != nil || ctx.Err() != nil {
		return false
	}
	c := p.report.counts
	level := slog.LevelInfo
	if c.PutBack > 0 {
		level = slog.LevelWarn
	}
	a.log.Log(ctx, level, "outbox has compared all rows with redis", "event", "outbox_audited", "queue", q.Name, "looked", c.Looked,
		"put_back", c.PutBack, "there", c.There, "settled", c.Settled, "skipped", c.Skipped, "blocked", c.Blocked,
		"seconds", time.Since(began).Seconds())
	if !sleep(ctx, a.config.second-time.Since(began), nil) {
		return false
	}
	p = &pass{Auditor: a, db: d, queue: q, asks: true, report: &report{observe: a.config.Observe}}
	return p.run(ctx) == nil
}

// inTurn compares overdue rows, and all others in turn, until something may be lost
// or the queue is another's.
func (a *Auditor) inTurn(ctx context.Context, q *AuditedQueue, d *Database, hint context.Context) {
	ctx, cancel := untilDone(ctx, hint)
	defer cancel()
	report := &report{observe: a.config.Observe}
	turn := &pass{Auditor: a, db: d, queue: q, asks: true, report: report}
	began := time.Now() // of this turn
	before := began     // of the one before
	var looked time.Time
	for pause := auditEvery; sleep(ctx, pause, nil); {
		if q.Mine != nil && !q.Mine() {
			return
		}
		most := a.config.Rate
		if time.Since(looked) >= overdueEvery {
			looked = time.Now()
			overdue := &pass{Auditor: a, db: d, queue: q, asks: true, overdue: true, report: report}
			n, _ := overdue.step(ctx, most)
			if most -= n; a.config.Watch != nil {
				a.config.Watch(q.Name, n, time.Since(before))
			}
		}
		pause = auditEvery
		if _, end := turn.step(ctx, max(1, most)); end {
			pause = max(auditEvery, leastTurn-time.Since(began))
			turn.after, before, began = cursor{}, began, time.Now().Add(pause)
		}
	}
}

// untilDone is ctx until the other is done.
func untilDone(ctx, other context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(other, cancel)
	return ctx, func() { stop(); cancel() }
}
