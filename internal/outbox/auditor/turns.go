package auditor

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// turns is the machine that chooses what a watch compares in each tick: overdue rows in rounds, and
// all others in turn, in steps of a bounded number of rows, again and again.
//
//	tick ──► next: the round whose step is due ──► stepped ──► next: … ──► none: until the next tick
//
// At most so many rows are compared in a tick:
//
//	overdue rows are due | the others are due | overdue ones were compared → overdue    | others
//	no                   | no                 | *                          → none       | none
//	no                   | yes                | *                          → none       | all of the rate
//	yes                  | no                 | *                          → half of it | none
//	yes                  | yes                | none                       → half of it | all of the rate
//	yes                  | yes                | half of the rate           → half of it | half of it
//	yes                  | yes                | more                       → half of it | one
//
// However many rows stay overdue, the others have their turn: overdue ones are at most half of
// the rate. What is due at 0 is a round of its own where it stands among other rows, so that
// these do not delay the rest.
type turns struct {
	rate   int
	every  time.Duration // between two rounds of overdue rows
	rounds []*round      // the last one is the turn of all others
	at     int           // whose step is next, of this tick
	rows   int           // compared in this tick
	before time.Time     // when the turn before this one began
	began  time.Time     // when this one did
	first  time.Duration // how long its first step took, which finds the beginning
}

// round goes through rows. It is a record, which belongs to its turns.
type round struct {
	overdue         bool
	from, to, after table.Cursor
	due             time.Time // when its next step is
	// overdueNow is how many of this round are still overdue, overdueBefore how many were of the one
	// before.
	overdueNow, overdueBefore int
}

// newTurns begins with the rows behind that place; those before it are overdue.
func newTurns(rate int, every time.Duration, behind table.Cursor, now time.Time) *turns {
	t := &turns{rate: rate, every: every, before: now, began: now}
	t.rounds = append(t.rounds, &round{overdue: true, from: behind, to: table.Cursor{Ms: table.MaxDueMs}})
	if behind != (table.Cursor{}) {
		t.rounds = append(t.rounds, &round{overdue: true, to: behind})
	}
	t.rounds = append(t.rounds, &round{from: behind})
	for _, r := range t.rounds {
		r.after = r.from
	}
	return t
}

// next is the round whose step is due in this tick, and how many rows it may compare; nil if
// there is none.
func (t *turns) next(now time.Time) (r *round, most int) {
	for t.at < len(t.rounds) {
		r, t.at = t.rounds[t.at], t.at+1
		switch {
		case now.Before(r.due):
		case r.overdue:
			return r, max(1, t.rate/2/(len(t.rounds)-1))
		default:
			return r, max(1, t.rate-t.rows)
		}
	}
	t.at, t.rows = 0, 0
	return nil, 0
}

// stepped takes the result of a round's step: how many rows it compared, up to after, and how many
// of them agree with Redis now; end says that they were the last.
func (t *turns) stepped(r *round, began, now time.Time, rows, mended int, after table.Cursor, end bool) {
	took := now.Sub(began)
	isFirst := r.after == r.from
	t.rows += rows
	r.after, r.overdueNow = after, r.overdueNow+rows-mended
	end = end || r.overdue && r.after == r.to
	if r.overdue {
		r.due = began.Add(wait.Rest(took))
	} else if isFirst {
		t.first = took
	}
	if !end {
		return
	}
	r.after, r.overdueBefore, r.overdueNow = r.from, r.overdueNow, 0
	if r.overdue {
		r.due = began.Add(max(t.every, wait.Rest(took)))
		return
	}
	r.due = now.Add(max(auditEvery, leastTurn-now.Sub(t.began), wait.Rest(t.first)))
	t.before, t.began = t.began, r.due
}

// overdue is how many rows are, and how long ago the row was compared for which that is
// longest.
func (t *turns) overdue(now time.Time) (count int, oldest time.Duration) {
	for _, r := range t.rounds {
		if r.overdue {
			count += max(r.overdueNow, r.overdueBefore)
		}
	}
	return count, now.Sub(t.before)
}
