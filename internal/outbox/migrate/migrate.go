// Package migrate makes and changes the tables of an outbox. The bridge never
// does that by itself: an operator does, with "bridge outbox migrate".
package migrate

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// ErrPending is returned by [Migrator.Down] while there are messages that no one
// has published: they would be lost.
var ErrPending = errors.New("table has messages that are not published")

const (
	// lockPatience is how long another migration is waited for, lockAgain how often it
	// is asked whether it has ended.
	lockPatience = 2 * time.Minute
	lockAgain    = 100 * time.Millisecond
)

// Migrator migrates the outbox with one table name in one database.
type Migrator struct {
	db         *sql.DB
	dialect    schema.Dialect
	table      string
	migrations []schema.Migration
	waiting    func(LockWait)
}

// Step is one migration.
type Step struct {
	Version int64
	Name    string
	// AppliedAt is zero if it was not applied.
	AppliedAt time.Time
}

// New returns a migrator. It does no I/O and does not close db, which needs three
// connections and, for MySQL, the option parseTime.
func New(db *sql.DB, dialect schema.Dialect, table string) (*Migrator, error) {
	migrations, err := schema.Migrations(dialect, table)
	if err != nil {
		return nil, err
	}
	return &Migrator{db: db, dialect: dialect, table: table, migrations: migrations, waiting: func(LockWait) {}}, nil
}

// OnWaiting has tell told when a step waits for transactions that use the table, and then
// about every five seconds. It is called before the migrator is used.
func (m *Migrator) OnWaiting(tell func(LockWait)) { m.waiting = tell }

// Up applies all migrations that were not yet, and returns them. Of several that
// run at once, one does it, the others wait.
func (m *Migrator) Up(ctx context.Context) (steps []Step, err error) {
	err = m.locked(ctx, func(p *goose.Provider) error {
		results, err := p.Up(ctx)
		steps = m.stepsOf(results)
		return err
	})
	if err != nil {
		return steps, fmt.Errorf("migrate table %s up: %w", m.table, err)
	}
	return steps, nil
}

// Down takes back the newest migration and returns it, none if there is none.
// With the first, the tables go: while they hold messages, the error is
// [ErrPending] unless it is forced.
func (m *Migrator) Down(ctx context.Context, force bool) (steps []Step, err error) {
	err = m.locked(ctx, func(p *goose.Provider) error {
		version, err := p.GetDBVersion(ctx)
		if err != nil || version == 0 {
			return err
		}
		if version == 1 && !force {
			if err := m.mayDrop(ctx); err != nil {
				return err
			}
		}
		result, err := p.Down(ctx)
		steps = m.stepsOf([]*goose.MigrationResult{result})
		return err
	})
	if err != nil {
		return steps, fmt.Errorf("migrate table %s down: %w", m.table, err)
	}
	return steps, nil
}

func (m *Migrator) mayDrop(ctx context.Context) error {
	var messages int64
	if err := m.db.QueryRowContext(ctx, "SELECT count(*) FROM "+m.table+" WHERE status IN (0, 1)").Scan(&messages); err != nil {
		return err
	}
	if messages > 0 {
		return fmt.Errorf("%w: %d", ErrPending, messages)
	}
	return nil
}

// Status returns all migrations. It changes nothing.
func (m *Migrator) Status(ctx context.Context) ([]Step, error) {
	steps, err := m.status(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask for migrations of table %s: %w", m.table, err)
	}
	return steps, nil
}

func (m *Migrator) status(ctx context.Context) ([]Step, error) {
	known, err := m.hasVersions(ctx)
	if err != nil {
		return nil, err
	}
	provider, err := m.provider()
	if err != nil {
		return nil, err
	}
	if !known { // The library would make its table now.
		sources := provider.ListSources()
		steps := make([]Step, len(sources))
		for i, source := range sources {
			steps[i] = Step{Version: source.Version, Name: m.name(source.Version)}
		}
		return steps, nil
	}
	list, err := provider.Status(ctx)
	if err != nil {
		return nil, err
	}
	steps := make([]Step, len(list))
	for i, s := range list {
		steps[i] = Step{Version: s.Source.Version, Name: m.name(s.Source.Version), AppliedAt: s.AppliedAt}
	}
	return steps, nil
}

func (m *Migrator) versions() string { return m.table + "_migrations" }

// hasVersions reports whether the table of applied versions exists.
func (m *Migrator) hasVersions(ctx context.Context) (found bool, err error) {
	if m.dialect == schema.Postgres {
		err = m.db.QueryRowContext(ctx, "SELECT to_regclass($1) IS NOT NULL", m.versions()).Scan(&found)
		return found, err
	}
	in, name := schema.Split(m.versions())
	err = m.db.QueryRowContext(ctx, "SELECT count(*) > 0 FROM information_schema.tables"+
		" WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ?", in, name).Scan(&found)
	return found, err
}

func (m *Migrator) provider() (*goose.Provider, error) {
	dialect := goose.DialectMySQL
	if m.dialect == schema.Postgres {
		dialect = goose.DialectPostgres
	}
	steps := make([]*goose.Migration, len(m.migrations))
	for i := range m.migrations {
		steps[i] = m.step(&m.migrations[i])
	}
	// Its Close would close the pool, which is the caller's.
	return goose.NewProvider(dialect, m.db, nil, goose.WithGoMigrations(steps...), goose.WithTableName(m.versions()), goose.WithDisableGlobalRegistry(true))
}

// locked changes the tables while no one else does: the library has a
// lock for PostgreSQL only.
func (m *Migrator) locked(ctx context.Context, run func(*goose.Provider) error) (err error) {
	provider, err := m.provider()
	if err != nil {
		return err
	}
	conn, err := m.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	unlock, err := m.lock(ctx, conn)
	if err != nil {
		return fmt.Errorf("lock out other migrations: %w", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	return run(provider)
}

var errLocked = errors.New("another migration is running")

func (m *Migrator) lock(ctx context.Context, conn *sql.Conn) (unlock func() error, err error) {
	if m.dialect == schema.Postgres {
		return m.lockPostgres(ctx, conn)
	}
	waiting, cancel := context.WithTimeoutCause(ctx, lockPatience+time.Second, errLocked)
	defer cancel()
	var got sql.NullInt64
	// Locks are the server's, and their names have 64 characters at most.
	const lockName = "SHA1(CONCAT(COALESCE(NULLIF(?, ''), DATABASE()), '.', ?))"
	in, name := schema.Split(m.versions())
	lock := fmt.Sprintf("SELECT GET_LOCK("+lockName+", %d)", int(lockPatience.Seconds()))
	if err := conn.QueryRowContext(waiting, lock, in, name).Scan(&got); err != nil {
		return nil, err
	}
	if got.Int64 != 1 {
		return nil, errLocked
	}
	return func() error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), "SELECT RELEASE_LOCK("+lockName+")", in, name)
		return err
	}, nil
}

// lockPostgres takes a lock that ends with a transaction, so that it stays with its
// session behind a pooler, too. It asks again and again, each time in a transaction of its
// own: whoever makes an index concurrently waits for the end of each transaction that it
// finds with a snapshot, and the one that makes it may be the one that has the lock.
func (m *Migrator) lockPostgres(ctx context.Context, conn *sql.Conn) (unlock func() error, err error) {
	waiting, cancel := context.WithTimeoutCause(ctx, lockPatience, errLocked)
	defer cancel()
	for {
		unlock, err := m.tryPostgres(waiting, conn)
		switch {
		case err != nil:
			return nil, errors.Join(context.Cause(waiting), err)
		case unlock != nil:
			return unlock, nil
		case !wait.Sleep(waiting, lockAgain):
			return nil, context.Cause(waiting)
		}
	}
}

// tryPostgres returns nil if another one has the lock.
func (m *Migrator) tryPostgres(ctx context.Context, conn *sql.Conn) (unlock func() error, err error) {
	tx, err := conn.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, err
	}
	_, name := schema.Split(m.versions()) // Whoever finds the table without its schema has the same lock.
	var got bool
	err = tx.QueryRowContext(ctx, "SELECT pg_try_advisory_xact_lock(hashtext($1))", name).Scan(&got)
	if err == nil && got {
		// The server keeps the snapshot of the last query until another statement comes.
		_, err = tx.ExecContext(ctx, "SAVEPOINT asked")
	}
	if err != nil || !got {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx.Rollback, nil
}

// name is the file's name of a migration.
func (m *Migrator) name(version int64) string { return m.migrations[version-1].Name }

func (m *Migrator) stepsOf(results []*goose.MigrationResult) []Step {
	var steps []Step
	for _, r := range results {
		if r != nil && r.Error == nil {
			steps = append(steps, Step{Version: r.Source.Version, Name: m.name(r.Source.Version)})
		}
	}
	return steps
}
