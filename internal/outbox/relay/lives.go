package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

const (
	// livesEvery is how often it is looked to which Redis the rows belong, livesAgain how soon
	// again where a batch has found that it is not ours.
	livesEvery, livesAgain = 5 * time.Second, 100 * time.Millisecond
	// beside is how much longer than a bridge of another life a Redis must have been there to be
	// another one for sure, and not that one, emptied: so wrong may the clocks be.
	beside = time.Minute
)

// lives sees to it that the rows of a queue are brought to one Redis only. Two bridges with
// two of them would each put back what the other one has.
//
// The table knows the life of the queue, and when a bridge of that life was there last. Which
// life is ours, Redis says. Where they differ, Redis was emptied, or ours is another one:
//
//	we have seen the table's life in our Redis ──► emptied: the rows go over to the new life at once
//	somebody of the table's life is there      ──► another Redis: refused
//	nobody is, for lapse;
//	   our Redis was made after he was seen    ──► emptied while nobody was there: the rows go over
//	   ours was there beside him               ──► another Redis: refused until an operator says otherwise
//
// Refused is what a batch finds in its own transaction, see [outbox.CheckLife]: this
// goroutine changes what the table says, and decides nothing about rows.
type lives struct {
	*Relay
	// By queue: the life that was both the table's and our Redis', and since when the table says
	// the same of a life that is not.
	confirmed map[string]string
	silent    map[string]silence
}

type silence struct {
	life  string
	seen  time.Time
	since time.Time // by our own clock
}

func newLives(r *Relay) *lives {
	return &lives{Relay: r, confirmed: map[string]string{}, silent: map[string]silence{}}
}

// run looks until ctx ends.
func (l *lives) run(ctx context.Context) error {
	for wait.SleepOrWake(ctx, livesEvery, l.disowned) && wait.Sleep(ctx, livesAgain) {
		l.step(ctx)
	}
	return nil
}

// step looks at each queue once. What fails is tried again next time.
func (l *lives) step(ctx context.Context) {
	for _, name := range l.names {
		bounded, cancel := context.WithTimeout(ctx, clockTimeout)
		err := l.look(bounded, name)
		cancel()
		if errors.Is(err, outbox.ErrOtherRedis) {
			l.others.set(name, err)
			continue
		}
		if err == nil {
			l.others.set(name, nil)
		} else if ctx.Err() == nil && !errors.Is(err, store.ErrNoLayout) {
			l.log.DebugContext(ctx, "outbox cannot tell whose its rows are", "queue", name, "err", err)
		}
	}
}

// look compares the life that the table knows of a queue with that in Redis.
func (l *lives) look(ctx context.Context, queue string) error {
	redis, err := l.queues[queue].Store.Pin(ctx)
	if err != nil {
		if known := l.confirmed[queue]; known != "" { // We are there, if Redis is not.
			err = errors.Join(err, l.db.Lives().Renew(ctx, queue, known))
		}
		return err
	}
	ours := redis.Life()
	rows, err := l.db.Lives().Confirm(ctx, queue, ours)
	switch {
	case err != nil:
		return err
	case rows.Name == ours:
		l.confirmed[queue] = ours
		delete(l.silent, queue)
		return l.db.Lives().Renew(ctx, queue, ours)
	case l.confirmed[queue] == rows.Name:
		return l.take(ctx, queue, rows, ours, "our Redis has lost the queue")
	}
	return l.await(ctx, queue, rows, redis)
}

// await decides about rows of a life that our Redis did not have since we look.
func (l *lives) await(ctx context.Context, queue string, rows table.Life, redis outbox.Store) error {
	s := l.silent[queue]
	if s.life != rows.Name || !s.seen.Equal(rows.Seen) {
		s = silence{rows.Name, rows.Seen, time.Now()}
		l.silent[queue] = s
	}
	if time.Since(s.since) < l.config.lapse {
		return outbox.CheckLife(queue, redis.Life(), rows.Name, rows.Silent)
	}
	born, err := l.bornOf(ctx, redis)
	if err != nil {
		return err
	}
	if born.Before(rows.Seen.Add(-beside)) {
		return outbox.CheckLife(queue, redis.Life(), rows.Name, rows.Silent)
	}
	return l.take(ctx, queue, rows, redis.Life(), "nobody with another Redis is there, and ours is newer")
}

// bornOf is when the queue was made in that Redis, by the database's clock; zero where that
// is unknown.
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

// take has the rows belong to our Redis.
func (l *lives) take(ctx context.Context, queue string, rows table.Life, ours, why string) error {
	done, err := l.db.Lives().Replace(ctx, queue, rows.Name, ours)
	if err != nil {
		return err
	}
	if !done {
		return fmt.Errorf("queue %s: somebody else has changed whose its rows are", queue)
	}
	l.confirmed[queue] = ours
	delete(l.silent, queue)
	l.log.WarnContext(ctx, "outbox rows belong to this Redis now: "+why, "event", "outbox_adopted", "queue", queue, "before", rows.Name, "life", ours)
	l.Wake()
	return nil
}

// others are the queues whose rows belong to another Redis. It is safe for concurrent use.
type others struct {
	mu     sync.Mutex
	queues map[string]error
}

func (o *others) set(queue string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		delete(o.queues, queue)
		return
	}
	if o.queues == nil {
		o.queues = map[string]error{}
	}
	o.queues[queue] = err
}

// any is why the rows of a queue are not ours, the first by name; nil where all are.
func (o *others) any(names []string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range names {
		if err := o.queues[name]; err != nil {
			return err
		}
	}
	return nil
}

// checkLife is for batches that have locked their rows: what they bring to Redis belongs
// there.
func (b *batch) checkLife(ctx context.Context, t *transaction) error {
	rows, err := t.Life(ctx, b.queue.Name, b.redis.Life())
	if err != nil {
		return err
	}
	return outbox.CheckLife(b.queue.Name, b.redis.Life(), rows.Name, rows.Silent)
}

// disown is how a batch went whose rows belong to another Redis, and whether err says so: the
// queue rests, and it is looked at once whether it was ours that was emptied.
func (l *lane) disown(ctx context.Context, queue string, outages map[string]*outbox.Outage, err error) bool {
	if !errors.Is(err, outbox.ErrOtherRedis) {
		return false
	}
	outages[queue].Observe(ctx, err)
	select {
	case l.relay.disowned <- struct{}{}:
	default: // It is about to look.
	}
	return true
}
