package relay

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

const (
	// livesEvery is the interval between checks of which Redis the rows belong to, livesAgain the
	// interval after a batch has found that it is not ours.
	livesEvery, livesAgain = 5 * time.Second, 100 * time.Millisecond
	// beside is how long a Redis must have existed before another life's bridge was last seen to
	// be certainly a different Redis and not that one, emptied. It is the error of the clocks.
	beside = time.Minute
)

// lives ensures that the rows of a queue go to one Redis only. Two bridges with two Redises would
// each put back the other's messages.
//
// The table has the queue's life, and when a bridge of that life was last there. Redis has our
// life; an owner decides what follows from both. A batch checks the life in its own transaction,
// see [outbox.CheckLife]: this goroutine only updates the table.
type lives struct {
	*Relay
	// By queue, and why its rows are not ours.
	owners  map[string]*owner
	refused map[string]error
}

func newLives(r *Relay) *lives {
	l := &lives{r, map[string]*owner{}, map[string]error{}}
	l.follow()
	return l
}

// follow has the queues checked that are served now.
func (l *lives) follow() {
	served := l.served.Load().queues
	isGone := func(name string) bool { return served[name] == nil }
	maps.DeleteFunc(l.owners, func(name string, _ *owner) bool { return isGone(name) })
	maps.DeleteFunc(l.refused, func(name string, _ error) bool { return isGone(name) })
	for name := range served {
		if l.owners[name] == nil {
			l.owners[name] = &owner{}
		}
	}
}

// owner is the machine that decides, for one bridge, which Redis the rows of a queue belong to. If
// the table's life differs from our Redis', either our Redis was emptied or it is another one:
//
//	the table's life | seen in our Redis | its bridges      | our Redis was made → the rows
//	ours             | *                 | *                | *                  → are ours
//	another          | yes               | *                | *                  → move to ours at once
//	another          | no                | write, are quiet | *                  → are refused
//	another          | no                | are gone         | after them         → move to ours
//	another          | no                | are gone         | beside them        → are refused until an operator decides
//
// Gone are bridges that have not written for lapse, as far as we have seen.
// So rows never move while a bridge with the Redis that they belong to is there.
type owner struct {
	confirmed string     // the life that was both the table's and our Redis'
	other     table.Life // the table's life, if it is another one
	since     time.Time  // by our own clock, when it began to say so
}

// ruling says which Redis the rows belong to.
type ruling uint8

const (
	rulingOurs    ruling = iota
	rulingOther          // another Redis'
	rulingEmptied        // ours, which was emptied
	rulingAlone          // the one that was made later
)

// rule decides by the table's life and that of our Redis.
func (o *owner) rule(now time.Time, lapse time.Duration, ours string, rows table.Life) ruling {
	switch {
	case rows.Name == ours:
		o.confirm(ours)
		return rulingOurs
	case o.other.Name != rows.Name || !o.other.Seen.Equal(rows.Seen):
		o.other, o.since = rows, now
	}
	if o.confirmed == rows.Name {
		return rulingEmptied
	}
	if now.Sub(o.since) < lapse {
		return rulingOther
	}
	return rulingAlone
}

// confirm records that the table and our Redis have the same life.
func (o *owner) confirm(life string) { *o = owner{confirmed: life} }

// isEmptied reports whether a queue that was made then is the table's queue after a loss.
func (o *owner) isEmptied(born time.Time) bool { return !born.Before(o.other.Seen.Add(-beside)) }

// run checks until ctx ends.
func (l *lives) run(ctx context.Context) error {
	for wait.SleepOrWake(ctx, livesEvery, l.disowned) && wait.Sleep(ctx, livesAgain) {
		l.step(ctx)
	}
	return nil
}

// step checks each queue once. A failed check is repeated next time.
func (l *lives) step(ctx context.Context) {
	var refused error
	for _, name := range l.served.Load().names {
		bounded, cancel := context.WithTimeout(ctx, clockTimeout)
		err := l.look(bounded, name, l.owners[name])
		cancel()
		switch {
		case err == nil, errors.Is(err, outbox.ErrOtherRedis):
			l.refused[name] = err
		case ctx.Err() == nil && !errors.Is(err, store.ErrNoLayout):
			l.log.DebugContext(ctx, "outbox cannot tell whose its rows are", "queue", name, "err", err)
		}
		refused = errors.Join(refused, l.refused[name])
	}
	l.others.Store(&refused)
}

// look compares the queue's life in the table with that in Redis.
func (l *lives) look(ctx context.Context, queue string, o *owner) error {
	redis, err := l.served.Load().queues[queue].Store.Pin(ctx)
	if err != nil {
		if o.confirmed != "" { // We are here even if Redis is not.
			err = errors.Join(err, l.db.Lives().Renew(ctx, queue, o.confirmed))
		}
		return err
	}
	ours := redis.Life()
	rows, err := l.db.Lives().Confirm(ctx, queue, ours)
	if err != nil {
		return err
	}
	switch o.rule(time.Now(), l.config.lapse, ours, rows) {
	case rulingOurs:
		return l.db.Lives().Renew(ctx, queue, ours)
	case rulingEmptied:
		return l.take(ctx, queue, o, ours, "our Redis has lost the queue")
	case rulingAlone:
		born, err := l.bornOf(ctx, redis)
		if err != nil {
			return err
		}
		if o.isEmptied(born) {
			return l.take(ctx, queue, o, ours, "nobody with another Redis is there, and ours is newer")
		}
	case rulingOther:
	}
	return outbox.CheckLife(queue, ours, rows.Name, rows.Silent)
}

// bornOf returns when the queue was made in that Redis, by the database's clock; zero if
// that is unknown.
func (l *lives) bornOf(ctx context.Context, redis outbox.Store) (first time.Time, err error) {
	shards, err := redis.Born(ctx)
	for i, at := range shards {
		if i == 0 || at.Before(first) {
			first = at
		}
	}
	if ahead := l.skew.Load(); ahead != nil && !first.IsZero() {
		first = first.Add(*ahead)
	}
	return first, err
}

// take makes the rows belong to our Redis.
func (l *lives) take(ctx context.Context, queue string, o *owner, ours, why string) error {
	before := o.other.Name
	done, err := l.db.Lives().Replace(ctx, queue, before, ours)
	if err == nil && !done {
		err = fmt.Errorf("queue %s: somebody else has changed the life of its rows", queue)
	}
	if err != nil {
		return err
	}
	l.log.WarnContext(ctx, "outbox rows belong to this Redis now: "+why, "event", "outbox_adopted", "queue", queue, "before", before, "life", ours)
	o.confirm(ours)
	l.Wake()
	return nil
}
