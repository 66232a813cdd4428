package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// A statement that changes a table waits for each transaction that uses it, and whoever
// comes later waits behind the statement: a dump or a forgotten session would stop all
// producers. So no statement waits longer than lockTimeout. A statement that timed out
// is tried again after a pause, in which producers continue, until the context ends.
const (
	lockTimeout            = time.Second
	againAfter, againLimit = 500 * time.Millisecond, 5 * time.Second
	// sayEvery is the time between two reports of the same wait.
	sayEvery = 5 * time.Second
)

// LockWait is a statement that waits for transactions that use the table.
type LockWait struct {
	// Step is the name of its migration.
	Step      string
	Statement string
	// Since is for how long, Tries how often it was tried.
	Since time.Duration
	Tries int
}

// step is the migration as the library runs it.
func (m *Migrator) step(s *schema.Migration) *goose.Migration {
	direction := func(text string) *goose.GoFunc {
		statements := schema.Statements(text)
		if s.Atomic {
			return &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error { return m.runAll(ctx, tx, statements) }}
		}
		return &goose.GoFunc{RunDB: func(ctx context.Context, db *sql.DB) error { return m.runEach(ctx, db, s.Name, statements) }}
	}
	return goose.NewGoMigration(s.Version, direction(s.Up), direction(s.Down))
}

// runAll runs statements of PostgreSQL in one transaction: they make, or take away, what
// nobody else uses.
func (m *Migrator) runAll(ctx context.Context, tx *sql.Tx, statements []string) error {
	if err := limitLock(ctx, tx); err != nil {
		return err
	}
	for _, text := range statements {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

func (m *Migrator) runEach(ctx context.Context, db *sql.DB, step string, statements []string) error {
	for _, text := range statements {
		if err := m.runPatiently(ctx, db, step, text); err != nil {
			return err
		}
	}
	return nil
}

// runPatiently tries a statement until it gets its locks.
func (m *Migrator) runPatiently(ctx context.Context, db *sql.DB, step, text string) error {
	began, pause := time.Now(), wait.Backoff{Initial: againAfter, Limit: againLimit}
	var said time.Time
	for tries := 1; ; tries++ {
		err := m.run(ctx, db, text)
		if err == nil || !isLockTimeout(err) {
			return err
		}
		if time.Since(said) >= sayEvery {
			said = time.Now()
			first, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
			m.waiting(LockWait{Step: step, Statement: first, Since: time.Since(began), Tries: tries})
		}
		if !wait.Sleep(ctx, pause.Next()) {
			return fmt.Errorf("transactions use the table, and did not end in %v: %w", time.Since(began).Round(time.Second), err)
		}
	}
}

// run runs a statement, in a session that waits for locks no longer than lockTimeout.
func (m *Migrator) run(ctx context.Context, db *sql.DB, text string) (err error) {
	if m.dialect == schema.MySQL {
		return runMySQL(ctx, db, text)
	}
	// It waits for each transaction that has a snapshot, and blocks none. If it
	// gave up, it would start again, and might never end.
	if strings.Contains(text, " CONCURRENTLY ") {
		_, err = db.ExecContext(ctx, text)
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		_ = tx.Rollback() // Nothing, if it was committed.
	}()
	if err := m.runAll(ctx, tx, []string{text}); err != nil {
		return err
	}
	return tx.Commit()
}

// limitLock limits how long a transaction of PostgreSQL waits for a lock; behind a
// pooler, too.
func limitLock(ctx context.Context, tx *sql.Tx) error {
	_, err := tx.ExecContext(ctx, fmt.Sprintf("SET LOCAL lock_timeout = '%dms'", lockTimeout.Milliseconds()))
	return err
}

func runMySQL(ctx context.Context, db *sql.DB, text string) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("SET SESSION lock_wait_timeout = %d", int(lockTimeout.Seconds()))); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, text)
	_, reset := conn.ExecContext(context.WithoutCancel(ctx), "SET SESSION lock_wait_timeout = DEFAULT")
	if err == nil && reset != nil && !errors.Is(reset, sql.ErrConnDone) {
		return reset
	}
	return err
}

// isLockTimeout reports whether a statement did not get a lock in time, or was ended so
// that others could go on.
func isLockTimeout(err error) bool {
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	switch {
	case errors.As(err, &pg):
		return pg.Code == "55P03" || pg.Code == "40P01"
	case errors.As(err, &my):
		return my.Number == 1205 || my.Number == 1213
	}
	return false
}
