package outbox

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"maps"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// How much a [Tracked] remembers. Further messages are left to the bridge.
const (
	trackedRows  = 1000
	trackedBytes = 16 << 20
)

const (
	// pushTime limits how long after [Outbox.Track] a push may still write.
	pushTime = 10 * time.Second
	// pinPatience is how long a transaction waits for Redis, once per queue and
	// process. After a failure, Redis is not asked for pinAgain.
	pinPatience = 200 * time.Millisecond
	pinAgain    = 5 * time.Second
)

// Tracked is a transaction that remembers the messages scheduled through it, so that
// [Tracked.Push] can bring them to Redis sooner than the bridge would. Like its
// transaction, it is for one goroutine at a time.
type Tracked struct {
	tx  Tx
	box *Outbox
	// since is when it was made; from pushTime later on, a push is refused.
	since time.Time
	rows  []trackedRow
	bytes int
	pins  map[string]*store.Rows // by queue, from before the commit; nil: Redis was away
	// clock is the database's clock in milliseconds at clockAt; 0 if not read.
	clock   int64
	clockAt time.Time
}

type trackedRow struct {
	queue string
	*row
}

// Track wraps a transaction that has just begun, for the fast path: schedule
// through the returned one, commit, and call [Tracked.Push]. It needs [WithRedis].
//
// The first transaction of a queue in ten seconds asks Redis for the queue's layout.
// While Redis is unavailable, that costs at most 200 ms, once in five seconds.
//
// Do not schedule through it what a savepoint may roll back: Push knows only that
// the whole transaction has committed, and writes everything that was scheduled.
func (o *Outbox) Track(tx Tx) *Tracked {
	return &Tracked{tx: tx, box: o, since: time.Now()}
}

// ExecContext runs a statement in the transaction.
func (t *Tracked) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return t.tx.ExecContext(ctx, query, args...)
}

// Commit commits the transaction, as its own Commit does. [Tracked.Push] comes after it.
func (t *Tracked) Commit() error { return t.tx.Commit() }

// prepare decides whether a row will be pushed, and marks it, because the
// bridge must then expect a message in Redis under its token.
func (t *Tracked) prepare(ctx context.Context, r *row) error {
	if t.box.rdb == nil || len(t.rows) == trackedRows || t.bytes+r.message.Size() > trackedBytes {
		return nil
	}
	if r.due.relative {
		if !canRead(t.tx) {
			return nil // Only the database knows the due time.
		}
		if err := t.readClock(ctx); err != nil {
			return t.box.failed("read clock", err)
		}
		r.due = dueTime{ms: t.clock + time.Since(t.clockAt).Milliseconds() + 1 + r.due.ms}
	}
	r.tried = time.UnixMilli(r.due.ms).Before(time.Now().Add(t.box.horizon))
	return nil
}

// pin remembers the queue, and so its limits, as it is before the commit. A push is
// refused if Redis has lost data since, because the loss may include how the
// message ended.
func (t *Tracked) pin(ctx context.Context, queue string) {
	if _, done := t.pins[queue]; done || t.box.rdb == nil {
		return
	}
	if t.pins == nil {
		t.pins = map[string]*store.Rows{}
	}
	t.pins[queue] = nil
	if failed := t.box.pinFailed.Load(); failed != nil && time.Since(*failed) < pinAgain {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, t.box.patience)
	defer cancel()
	q := t.box.queue(queue)
	pinned, err := q.Pin(ctx)
	switch {
	case err == nil && q.KnownLayout(layoutTrust) == nil: // Redis was unavailable, so the queue's sink may have changed.
	case err == nil:
		t.pins[queue] = pinned
	case !errors.Is(err, store.ErrNoLayout): // ErrNoLayout concerns this queue alone, and Redis has answered.
		now := time.Now()
		t.box.pinFailed.Store(&now)
	}
}

// readClock reads the database's clock once, and pairs it with an instant from
// before the query, so that the time added to it is never too short.
func (t *Tracked) readClock(ctx context.Context) error {
	if t.clock != 0 {
		return nil
	}
	t.clockAt = time.Now()
	return t.box.scanRow(ctx, t.tx, "SELECT "+t.box.now(), nil, &t.clock)
}

// remember keeps copies of the inserted rows, because the caller may change its
// message before the push.
func (t *Tracked) remember(queue string, rows []*row) {
	for _, r := range rows {
		if r.op == replaceCode {
			t.forget(queue, r.result.Ref)
			continue
		}
		if !r.tried || r.result.Status != delay.Created {
			continue
		}
		m := *r.message
		m.Headers, m.Body = maps.Clone(m.Headers), bytes.Clone(m.Body)
		t.rows = append(t.rows, trackedRow{queue: queue, row: &row{message: &m, token: r.token, due: r.due}})
		t.bytes += m.Size()
	}
}

// forget drops a message that the same transaction cancels or reschedules,
// because the bridge must apply those rows in their order.
func (t *Tracked) forget(queue string, ref delay.Ref) {
	kept := t.rows[:0]
	for _, r := range t.rows {
		if r.queue == queue && r.message.ID == ref.ID && r.message.Key == ref.Key {
			t.bytes -= r.message.Size()
			continue
		}
		kept = append(kept, r)
	}
	clear(t.rows[len(kept):])
	t.rows = kept
}
