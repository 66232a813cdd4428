package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/store"
)

// Where rows are kept until their messages are published, a stored row's message
// that Redis has not was published: an operation comes too late. Not so after
// Redis was wiped, until the rows of the queue have been put back: then the relay
// puts the message of an operation back itself, and the operation finds it.

// readLives reads with which lives of their queues the rows were reconciled.
func (b *batch) readLives(ctx context.Context, tx querier) error {
	b.lives = map[string]string{}
	if !b.relay.decider.untilPublished {
		return nil
	}
	q := b.relay.db.query("").add("SELECT queue, life FROM {t}_queues WHERE life <> ''")
	err := q.each(ctx, tx, func(rows *sql.Rows) error {
		var queue, life string
		err := rows.Scan(&queue, &life)
		b.lives[queue] = life
		return err
	})
	if err != nil {
		return fmt.Errorf("read lives of queues: %w", err)
	}
	return nil
}

// madeAnew reports whether the queue is another one than its rows were reconciled
// with. One that never was is none.
func (b *batch) madeAnew(ctx context.Context, q *Queue) bool {
	life, known := b.lives[q.Name]
	if !known {
		return false
	}
	layout, err := q.Store.Layout(ctx)
	return err != nil || layout.Life() != life
}

// mustPutBack reports whether the message may be missing in Redis, so that an
// operation would not find it.
func (b *batch) mustPutBack(ctx context.Context, g *group) bool {
	return g.head != nil && g.head.state == stateStored && b.madeAnew(ctx, b.relay.queues[g.queue])
}

var errWiped = errors.New("redis has lost the message, which is not put back yet")

// putBack puts a stored message back where it may be missing; ok is false where
// the operation may then go on. What was due before may have been published, as
// with a reconciliation.
func (b *batch) putBack(ctx context.Context, q *Queue, g *group, s situation) (v verdict, ok bool, err error) {
	if !g.head.content.whole {
		return verdict{stop: true}, true, errWiped // Redis was wiped since the bodies were read.
	}
	put, err := b.prepareRow(q, g.head)
	if err != nil {
		return verdict{}, false, nil //nolint:nilerr // No reconciliation could put it back either.
	}
	put.Mark = store.MarkIf(g.copyOut || g.head.dueMs <= b.look.now.UnixMilli())
	answer := q.Store.Put(ctx, []store.Row{put})[0]
	switch failureOf(answer.Err) {
	case failureLater, failureUnsure:
		return verdict{stop: true}, true, answer.Err
	case failureInvalid, failureNone:
	}
	if answer.Code == store.EndedPublished || answer.Code == store.EndedCancelled {
		return b.relay.decider.judge(s, answer), true, nil
	}
	return verdict{}, false, nil
}
