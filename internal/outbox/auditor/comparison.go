package auditor

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// actionKind is what a comparison wants.
type actionKind uint8

const (
	actionEnd   actionKind = iota // nothing is left
	actionPause                   // something has failed, and is to be tried again: for a while
	actionAsk                     // ask Redis for tokens: asked
	actionRead                    // pin the store, and read rows again, whole: reread
	actionPut                     // put whole rows: put
	actionRenew                   // put rows in the place of messages from before: renewed
	actionTell                    // tell rows that their message has ended: told
)

// action is one, with what it takes. It is a record.
type action struct {
	kind  actionKind
	rows  []*table.Row
	until time.Time // rows are put until then, into this store
	redis outbox.Store
	fates []table.Fate
	err   error // why it pauses
}

// comparison is of a chunk of rows with Redis, as a machine.
//
//	rows ──ask──► there: done
//	 ▲            ended: tell the row
//	 │            another message waits in its place: renew
//	 │            nothing is known ──read──► whole rows, as they are now ──put──► as above
//	 └── what has failed, after a pause; whole rows, too, if they are too old
//
// What is put was read putWithin ago at the most, in a store that was pinned before. A row of
// which nothing has come by then is compared again, so each is there, told, or left to
// somebody else, when nothing is left.
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
	left    []*table.Row // to be compared again

	size, there int   // of the whole rows, and how many were there
	err         error // why some are left
}

// next is what to do now.
func (c *comparison) next(now time.Time) action {
	if !now.Before(c.until) {
		c.left, c.whole = append(c.left, c.whole...), nil
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
	case len(c.left) > 0:
		pause := action{kind: actionPause, err: c.err}
		c.rows, c.left, c.err = c.left, nil, nil
		return pause
	}
	return action{}
}

// ask has Redis be asked for rows.
func (c *comparison) ask(rows []*table.Row) { c.rows = rows }

// renew has rows be put in the place of other messages.
func (c *comparison) renew(rows []*table.Row) { c.waiting = rows }

// asked takes what Redis knows of the rows.
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

// reread takes rows that were missing, whole as they are now and read at that instant. What has
// changed is somebody else's.
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

// put takes what Redis has answered to the first whole rows, nil if one can never be put.
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

// renewed takes what came of so many rows that were to be put in the place of other messages.
func (c *comparison) renewed(rows []*table.Row, r renewal, err error) (n Counts) {
	c.waiting = c.waiting[len(rows):]
	if err != nil {
		c.fail(rows, err)
		return n
	}
	n.Skipped, n.Blocked, c.left = int64(r.skipped), int64(r.blocked), append(c.left, r.left...)
	for i, row := range r.put {
		n.add(c.answer(row, r.answers[i]))
	}
	return n
}

// told takes which rows say now that their message has ended.
func (c *comparison) told(known []table.Known, err error) (n Counts) {
	for i, r := range c.ended {
		switch {
		case err != nil:
			c.left = append(c.left, r)
		case known[i] == table.KnownSettled:
			n.Settled++
		default:
			n.Skipped++
		}
	}
	c.ended, c.fates, c.err = nil, nil, errors.Join(c.err, err)
	return n
}

func (c *comparison) fail(rows []*table.Row, err error) {
	c.left, c.err = append(c.left, rows...), errors.Join(c.err, err)
}

// answer takes what Redis says of a row, nil if that can never be put.
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
		c.left, c.err = append(c.left, r), answer.Err // One of many that say the same.
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
