package auditor

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// actionKind is the kind of a comparison's next action.
type actionKind uint8

const (
	actionEnd   actionKind = iota // nothing is left
	actionPause                   // something has failed and is retried for a while
	actionAsk                     // ask Redis for tokens: asked
	actionRead                    // pin the store, and read rows again, whole: reread
	actionPut                     // put whole rows: put
	actionRenew                   // replace earlier messages by rows: renewed
	actionTell                    // tell rows that their message has ended: told
)

// action is the next action with its arguments. It is a record.
type action struct {
	kind  actionKind
	rows  []*table.Row
	until time.Time // rows are put until then, into this store
	redis outbox.Store
	fates []table.Fate
	err   error // why it pauses
}

// comparison is the machine that compares a chunk of rows with Redis.
//
//	rows ──ask──► there: done
//	 ▲            ended: tell the row
//	 │            another message waits in its place: renew
//	 │            nothing is known ──read──► whole rows, as they are now ──put──► as above
//	 └── what has failed, after a pause; whole rows, too, if they are too old
//
// A row that is put was read at most putWithin ago, from a store that was pinned before. One
// without an answer by then is compared again. So in the end each row is there, told, or left to
// another transaction.
type comparison struct {
	dry     bool
	missing *atomic.Bool // of the pass: Redis had the lesser part of a chunk

	rows    []*table.Row // to be asked for
	absent  []*table.Row // to be read
	whole   []*table.Row // to be put until then, into the store as it was pinned before they were read
	until   time.Time
	redis   outbox.Store
	waiting []*table.Row // to be renewed
	ended   []*table.Row // to be told their fates
	fates   []table.Fate
	retry   []*table.Row // to be compared again

	size, there int   // of the whole rows, and how many were there
	err         error // why some are left
}

// next is the next action.
func (c *comparison) next(now time.Time) action {
	if !now.Before(c.until) {
		c.retry, c.whole = append(c.retry, c.whole...), nil
	}
	switch {
	case len(c.ended) > 0:
		return action{kind: actionTell, fates: c.fates}
	case len(c.waiting) > 0:
		return action{kind: actionRenew, rows: c.waiting[:min(len(c.waiting), table.BatchRows)]}
	case len(c.whole) > 0:
		return action{kind: actionPut, rows: c.whole[:table.Affordable(c.whole)], until: c.until, redis: c.redis}
	case len(c.rows) > 0:
		return action{kind: actionAsk, rows: c.rows}
	case len(c.absent) > 0:
		return action{kind: actionRead, rows: c.absent}
	case len(c.retry) > 0:
		pause := action{kind: actionPause, err: c.err}
		c.rows, c.retry, c.err = c.retry, nil, nil
		return pause
	}
	return action{}
}

// ask adds rows to ask Redis for.
func (c *comparison) ask(rows []*table.Row) { c.rows = rows }

// renew adds rows that replace other messages.
func (c *comparison) renew(rows []*table.Row) { c.waiting = rows }

// asked takes Redis' answers for the rows.
func (c *comparison) asked(answers []store.Answer) (n Counts) {
	rows := c.rows
	c.rows = nil
	for i, answer := range answers {
		if answer.Err == nil && answer.Code == store.Absent {
			c.absent = append(c.absent, rows[i])
		} else {
			n.add(c.answer(rows[i], &answer))
		}
	}
	c.missing.Store(2*len(c.absent) > len(rows))
	if c.dry {
		n.PutBack, c.absent = int64(len(c.absent)), nil
	}
	return n
}

// reread takes rows that were missing, whole, as they were at that instant. Changed rows belong to
// another transaction.
func (c *comparison) reread(at time.Time, redis outbox.Store, whole []*table.Row, err error) (n Counts) {
	if err != nil {
		c.fail(c.absent, err)
	} else {
		n.Skipped = int64(len(c.absent) - len(whole))
		c.read(at, redis, whole)
	}
	c.absent = nil
	return n
}

// read takes whole rows.
func (c *comparison) read(at time.Time, redis outbox.Store, whole []*table.Row) {
	c.redis, c.whole, c.until, c.size, c.there = redis, whole, at.Add(putWithin), len(whole), 0
}

// put takes Redis' answers to the first whole rows, nil for one that can never be put.
func (c *comparison) put(answers []*store.Answer, err error) (n Counts) {
	rows := c.whole[:table.Affordable(c.whole)]
	c.whole = c.whole[len(rows):]
	if err != nil {
		c.fail(rows, err)
		return n
	}
	for i, r := range rows {
		n.add(c.answer(r, answers[i]))
		r.Content.Body = nil
	}
	if c.there += int(n.There); 2*c.there > c.size {
		c.missing.Store(false)
	}
	return n
}

// renewed takes the result for that many rows that were to replace other messages.
func (c *comparison) renewed(rows []*table.Row, r renewal, err error) (n Counts) {
	c.waiting = c.waiting[len(rows):]
	if err != nil {
		c.fail(rows, err)
		return n
	}
	n.Skipped, n.Blocked, c.retry = int64(r.skipped), int64(r.blocked), append(c.retry, r.postponed...)
	for i, row := range r.put {
		n.add(c.answer(row, r.answers[i]))
	}
	return n
}

// recorded takes the results of recording fates in the rows of ended messages.
func (c *comparison) recorded(known []table.FateResult, err error) (n Counts) {
	for i, r := range c.ended {
		switch {
		case err != nil:
			c.retry = append(c.retry, r)
		case known[i] == table.FateSettled:
			n.Settled++
		default:
			n.Skipped++
		}
	}
	c.ended, c.fates, c.err = nil, nil, errors.Join(c.err, err)
	return n
}

func (c *comparison) fail(rows []*table.Row, err error) {
	c.retry, c.err = append(c.retry, rows...), errors.Join(c.err, err)
}

// answer takes what Redis says of a row, nil if that can never be put.
//
//	Redis                        | dry run → the row
//	knows nothing                | no      → is read again, and put
//	knows nothing                | yes     → counts as put back
//	has it now                   | no      → counts as put back
//	has it                       | *       → is there
//	published it                 | no      → is told: published
//	cancelled it                 | no      → is told: cancelled
//	cancelled it with a copy out | no      → is told: cancelled with a copy out
//	published it                 | yes     → counts as settled
//	cancelled it                 | yes     → counts as settled
//	cancelled it with a copy out | yes     → counts as settled
//	moved it                     | *       → is left to the relay
//	has another that waits       | *       → replaces that if it may
//	has another in flight        | *       → replaces that if it may
//	has no answer                | *       → is compared again
//	could never take it          | *       → is blocked
//	says anything else           | *       → is blocked
func (c *comparison) answer(r *table.Row, answer *store.Answer) Counts {
	end := func(state table.State, maybe bool) Counts {
		if c.dry {
			return Counts{Settled: 1}
		}
		c.ended, c.fates = append(c.ended, r), append(c.fates, table.Fate{Version: r.Version(), State: state, Maybe: maybe})
		return Counts{}
	}
	switch {
	case answer == nil:
		return Counts{Blocked: 1}
	case answer.Err != nil:
		c.retry, c.err = append(c.retry, r), answer.Err // One of many that say the same.
		return Counts{}
	}
	switch answer.Code {
	case store.Created:
		return Counts{PutBack: 1}
	case store.Mine:
		return Counts{There: 1}
	case store.EndedPublished:
		return end(table.StatePublished, false)
	case store.EndedCancelled, store.EndedMaybe:
		return end(table.StateCancelled, answer.Code == store.EndedMaybe)
	case store.EndedMoved:
		return Counts{Skipped: 1} // The operation that has moved it is done again.
	case store.Waiting, store.InFlight:
		c.waiting = append(c.waiting, r)
		return Counts{}
	default:
		return Counts{Blocked: 1}
	}
}
