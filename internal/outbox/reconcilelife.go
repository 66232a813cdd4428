package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// lifeEvery is how often the lives of queues are looked at by themselves.
	lifeEvery = 5 * time.Second
	// flushTimeout limits the flush before a reconciliation, graceBefore is how
	// long it waits for what pollers are about to say.
	flushTimeout = 5 * time.Second
	graceBefore  = 500 * time.Millisecond
	// secondLook is how long after a pass it looks again at rows that somebody had
	// in his hands: longer than a relay's transaction and than a tombstone's life.
	secondLook = 65 * time.Second
	// againLimit is how many such rows are noted; where there are more, all rows
	// are gone through again.
	againLimit = 200_000
	// againRounds is how often they are looked at again.
	againRounds = 5
	// lockEvery keeps the session alive that holds the lock.
	lockEvery = 10 * time.Second
)

// lifeOf is a queue in a database.
type lifeOf struct {
	db    *Database
	queue string
}

// Changed has Run look at once whether a queue was made anew. It does not block.
func (r *Reconciler) Changed() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run puts back what is missing whenever a queue was made anew, as after a wipe
// of Redis: its life then differs from the one that the database has noted. Of
// several instances one does it; where it dies, another does it all again. Run
// ends with ctx and returns nil.
func (r *Reconciler) Run(ctx context.Context) error {
	for {
		var busy sync.WaitGroup
		for i := range r.config.Queues {
			q := &r.config.Queues[i]
			busy.Go(func() { r.checkQueue(ctx, q) })
		}
		busy.Wait()
		if !sleep(ctx, lifeEvery, r.wake) {
			return nil
		}
	}
}

// checkQueue compares the queue's life with those in the databases.
func (r *Reconciler) checkQueue(ctx context.Context, q *ReconciledQueue) {
	layout, err := q.Redis.LoadLayout(ctx)
	if err != nil {
		return // Others say that it is away, or make it.
	}
	life := layout.Life()
	for _, d := range r.config.Databases {
		at := lifeOf{d, q.Name}
		r.mu.Lock()
		done := r.lives[at] == life
		r.mu.Unlock()
		if done {
			continue
		}
		reconciled, err := r.renew(ctx, d, q, life)
		if r.away.observe(ctx, err); err == nil && reconciled {
			r.mu.Lock()
			r.lives[at] = life
			r.mu.Unlock()
		}
	}
}

// renew reconciles the queue's rows if they were not yet with this life of it;
// done is false where another instance is at it.
func (r *Reconciler) renew(ctx context.Context, d *Database, q *ReconciledQueue, life string) (done bool, err error) {
	if err := d.addQueue(ctx, q.Name); err != nil {
		return false, err
	}
	tx, err := d.begin(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // Nothing, where it was committed.
	old, locked, err := d.lockLife(ctx, tx, q.Name)
	if err != nil || !locked {
		return false, err
	}
	if old == life {
		return true, nil
	}
	why := "outbox reconciles: the queue was made anew"
	if old == "" {
		why = "outbox reconciles: it sees the queue for the first time"
	}
	r.log.InfoContext(ctx, why, "event", "outbox_reconcile_begins", "queue", q.Name)
	started := time.Now()
	p := &pass{Reconciler: r, db: d, queue: q, report: &report{observe: r.config.Observe}, again: &again{list: map[identity]bool{}}}
	session, drop := context.WithCancelCause(ctx)
	defer drop(nil)
	var holding sync.WaitGroup
	holding.Go(func() { drop(holdSession(session, tx)) })
	err = r.renewRows(session, p)
	if err == nil {
		err = context.Cause(session)
	}
	drop(nil)
	holding.Wait()
	if err != nil {
		return false, err
	}
	if err := d.writeLife(ctx, tx, q.Name, life); err != nil {
		return false, err
	}
	if err := tx.Commit(); err != nil {
		return false, fmt.Errorf("note life of queue: %w", err)
	}
	c := p.report.counts
	r.log.InfoContext(ctx, "outbox reconciled", "event", "outbox_reconciled", "queue", q.Name, "looked", c.Looked, "put_back", c.PutBack,
		"there", c.There, "settled", c.Settled, "skipped", c.Skipped, "blocked", c.Blocked, "seconds", time.Since(started).Seconds())
	return true, nil
}

// renewRows goes through all rows once, and again through those that a relay may
// have had in its hands: it may have stored one before the wipe, and say so after
// we have passed.
func (r *Reconciler) renewRows(ctx context.Context, p *pass) error {
	r.flush(ctx)
	now, err := p.queue.Redis.Clock(ctx)
	if err != nil {
		return fmt.Errorf("ask redis for the time: %w", err)
	}
	untilMs := now.Add(r.config.Horizon + time.Minute).UnixMilli()
	pending, all, err := p.db.pendingIdentities(ctx, p.queue.Name, untilMs, againLimit)
	if err != nil {
		return err
	}
	p.again.over = !all
	for _, it := range pending {
		p.later(it)
	}
	if err := p.run(ctx); err != nil {
		return err
	}
	r.log.InfoContext(ctx, "outbox went through all rows", "event", "outbox_reconcile_passed", "queue", p.queue.Name,
		"put_back", p.report.counts.PutBack, "again", len(p.again.list))
	for range againRounds {
		list, over := p.again.take()
		if len(list) == 0 && !over {
			return nil
		}
		if !sleep(ctx, r.config.second, nil) {
			return context.Cause(ctx)
		}
		if err := p.lookAgain(ctx, list, over); err != nil {
			return err
		}
	}
	return nil // What is left has operations that wait for something else.
}

func (p *pass) lookAgain(ctx context.Context, list []identity, over bool) error {
	if over {
		return p.run(ctx)
	}
	for chunk := range slices.Chunk(list, chunkRows) {
		started := time.Now()
		rows, err := p.read(ctx, func(ctx context.Context) ([]*stored, error) { return p.db.storedOf(ctx, chunk) })
		if err != nil {
			return err
		}
		if err := p.work(ctx, rows, started); err != nil {
			return err
		}
	}
	return nil
}

// again are rows that are looked at again.
type again struct {
	mu   sync.Mutex
	list map[identity]bool
	over bool // there are too many
}

func (p *pass) later(it identity) {
	if p.again == nil {
		return
	}
	p.again.mu.Lock()
	defer p.again.mu.Unlock()
	if len(p.again.list) >= againLimit {
		p.again.over = true
		return
	}
	p.again.list[it] = true
}

func (a *again) take() (list []identity, over bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for it := range a.list {
		list = append(list, it)
	}
	clear(a.list)
	over, a.over = a.over, false
	return list, over
}

// holdSession keeps the transaction alive until ctx ends; an error means that
// its lock is gone.
func holdSession(ctx context.Context, tx querier) error {
	for sleep(ctx, lockEvery, nil) {
		call, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementTimeout)
		_, err := tx.ExecContext(call, "SELECT 1")
		cancel()
		if err != nil {
			return fmt.Errorf("hold the lock of a queue: %w", err)
		}
	}
	return nil
}

// addQueue makes the queue's row, if there is none.
func (d *Database) addQueue(ctx context.Context, queue string) error {
	q := d.query("").add("INSERT INTO {t}_queues (queue) VALUES (?) ON CONFLICT DO NOTHING", queue)
	if !d.dialect.arrays {
		q = d.query("").add("INSERT IGNORE INTO {t}_queues (queue) VALUES (?)", queue)
	}
	var there bool
	look := d.query("").add("SELECT EXISTS (SELECT 1 FROM {t}_queues WHERE queue = ?)", queue)
	err := look.each(ctx, d.db, func(rows *sql.Rows) error { return rows.Scan(&there) })
	if err == nil && !there { // Else it might wait for the lock of another instance.
		_, err = q.exec(ctx, d.db)
	}
	if err != nil {
		return fmt.Errorf("note queue: %w", err)
	}
	return nil
}

// lockLife locks the queue's row, unless somebody else has.
func (d *Database) lockLife(ctx context.Context, tx querier, queue string) (life string, locked bool, err error) {
	q := d.query("").add("SELECT life FROM {t}_queues WHERE queue = ? FOR UPDATE SKIP LOCKED", queue)
	err = q.each(ctx, tx, func(rows *sql.Rows) error { locked = true; return rows.Scan(&life) })
	if err != nil {
		return "", false, fmt.Errorf("lock queue: %w", err)
	}
	return life, locked, nil
}

var errNoRow = errors.New("its row is gone")

func (d *Database) writeLife(ctx context.Context, tx querier, queue, life string) error {
	n, err := d.query("").add("UPDATE {t}_queues SET life = ?, reconciled_ms = {now} WHERE queue = ?", life, queue).exec(ctx, tx)
	if err == nil && n == 0 {
		err = errNoRow
	}
	if err != nil {
		return fmt.Errorf("note life of queue: %w", err)
	}
	return nil
}
