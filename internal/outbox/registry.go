package outbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"
)

// registry keeps a row for each relay that lives, which a clean stop removes. A
// row that is left behind tells that its relay may have written messages to
// Redis without having told their rows. It is safe for concurrent use.
type registry struct {
	db       *Database
	instance string

	mu    sync.Mutex
	life  string    // our row; another one after each unclean end of a transaction
	seen  time.Time // monotonic: before the last beat that succeeded
	tidy  bool      // no transaction of this life ended uncleanly
	begun bool
}

func newRegistry(db *Database, instance string) *registry {
	return &registry{db: db, instance: instance, tidy: true}
}

// beat says that we live.
func (r *registry) beat(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	started := time.Now()
	if r.begun && r.tidy {
		n, err := r.db.query("").add("UPDATE {t}_relays SET seen_ms = {now} WHERE instance = ?", r.life).exec(ctx, r.db.db)
		if err != nil {
			return fmt.Errorf("register relay: %w", err)
		}
		r.begun = n > 0 // Others have held us for dead, for long.
	}
	if !r.begun || !r.tidy {
		// The old row, if any, stays and counts as a death.
		var random [6]byte
		_, _ = rand.Read(random[:]) // never fails
		life := r.instance + "/" + hex.EncodeToString(random[:])
		if _, err := r.db.query("").add("INSERT INTO {t}_relays (instance, seen_ms) VALUES (?, {now})", life).exec(ctx, r.db.db); err != nil {
			return fmt.Errorf("register relay: %w", err)
		}
		r.life, r.begun, r.tidy = life, true, true
	}
	r.seen = started
	return nil
}

// alive reports whether others can see that we live: else no round may start.
func (r *registry) alive() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begun && r.tidy && time.Since(r.seen) < 2*beatEvery
}

// unclean says that a transaction may not have recorded what it did in Redis.
func (r *registry) unclean() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tidy = false
}

// leave removes our row at a clean stop.
func (r *registry) leave(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.begun || !r.tidy {
		return nil
	}
	r.begun = false
	if _, err := r.db.query("").add("DELETE FROM {t}_relays WHERE instance = ?", r.life).exec(ctx, r.db.db); err != nil {
		return fmt.Errorf("unregister relay: %w", err)
	}
	return nil
}

// evidence reads the clock and who died. The relay must be registered.
func (d *Database) evidence(ctx context.Context, horizon time.Duration) (evidence, error) {
	e := evidence{horizonMs: horizon.Milliseconds(), read: time.Now()}
	err := d.query("SELECT {now}, seen_ms FROM {t}_relays").each(ctx, d.db, func(rows *sql.Rows) error {
		var seen int64
		err := rows.Scan(&e.databaseMs, &seen)
		if e.databaseMs-seen > dead.Milliseconds() {
			e.deaths = append(e.deaths, seen)
		}
		return err
	})
	if err == nil && e.databaseMs == 0 {
		err = errors.New("this relay is not there")
	}
	if err != nil {
		return e, fmt.Errorf("read relays: %w", err)
	}
	return e, nil
}

// forgetDeaths removes the rows of dead relays that no pending row needs any more.
func (d *Database) forgetDeaths(ctx context.Context, untilMs int64) error {
	q := d.query("").add("DELETE FROM {t}_relays WHERE seen_ms < {now} - ?", (remembered + deathMargin + redisPhase).Milliseconds())
	q.add(" AND NOT EXISTS (SELECT 1").from(byLoad).
		add(" WHERE status = 0 AND load_ms <= ? AND created_ms <= seen_ms + ?)", untilMs, deathMargin.Milliseconds())
	err := d.within(ctx, func(tx querier) error {
		_, err := q.exec(ctx, tx)
		return err
	})
	if err != nil {
		return fmt.Errorf("forget dead relays: %w", err)
	}
	return nil
}
