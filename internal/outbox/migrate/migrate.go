// Package migrate makes and changes the tables of an outbox. The bridge never
// does that by itself: an operator does, with "bridge outbox migrate".
package migrate

import (
	"archive/zip"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
)

// ErrPending is returned by [Migrator.Down] while there are messages that nobody
// has published: they would be lost.
var ErrPending = errors.New("table has messages that are not published")

// lockPatience is how long another migration may take.
const lockPatience = 30 * time.Second

// Migrator migrates the outbox with one table name in one database.
type Migrator struct {
	db      *sql.DB
	dialect schema.Dialect
	table   string
	files   fs.FS
}

// Step is one migration.
type Step struct {
	Version int64
	Name    string
	// AppliedAt is zero where it was not applied.
	AppliedAt time.Time
}

// New returns a migrator. It does no I/O and does not close db, which needs two
// connections and, for MySQL, the option parseTime.
func New(db *sql.DB, dialect schema.Dialect, table string) (*Migrator, error) {
	migrations, err := schema.Migrations(dialect, table)
	if err != nil {
		return nil, err
	}
	files, err := archive(migrations)
	if err != nil {
		return nil, err
	}
	return &Migrator{db: db, dialect: dialect, table: table, files: files}, nil
}

// archive is a file system of the migrations, which the library asks for.
func archive(migrations []schema.Migration) (fs.FS, error) {
	var buffer bytes.Buffer
	writer := zip.NewWriter(&buffer)
	for _, m := range migrations {
		file, err := writer.Create(m.Name)
		if err != nil {
			return nil, fmt.Errorf("collect migrations: %w", err)
		}
		if _, err := file.Write([]byte(m.SQL)); err != nil {
			return nil, fmt.Errorf("collect migrations: %w", err)
		}
	}
	if err := writer.Close(); err != nil {
		return nil, fmt.Errorf("collect migrations: %w", err)
	}
	return zip.NewReader(bytes.NewReader(buffer.Bytes()), int64(buffer.Len()))
}

// Up applies all migrations that were not yet, and returns them. Of several that
// run at once, one does it, the others wait.
func (m *Migrator) Up(ctx context.Context) (steps []Step, err error) {
	err = m.locked(ctx, func(p *goose.Provider) error {
		results, err := p.Up(ctx)
		steps = stepsOf(results)
		return err
	})
	if err != nil {
		return steps, fmt.Errorf("migrate table %s up: %w", m.table, err)
	}
	return steps, nil
}

// Down takes back the newest migration and returns it, none where there is none.
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
		steps = stepsOf([]*goose.MigrationResult{result})
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
			steps[i] = Step{Version: source.Version, Name: source.Path}
		}
		return steps, nil
	}
	list, err := provider.Status(ctx)
	if err != nil {
		return nil, err
	}
	steps := make([]Step, len(list))
	for i, s := range list {
		steps[i] = Step{Version: s.Source.Version, Name: s.Source.Path, AppliedAt: s.AppliedAt}
	}
	return steps, nil
}

func (m *Migrator) versions() string { return m.table + "_migrations" }

// hasVersions reports whether the table that records what was applied is there.
func (m *Migrator) hasVersions(ctx context.Context) (found bool, err error) {
	query := "SELECT count(*) > 0 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?"
	if m.dialect == schema.Postgres {
		query = "SELECT to_regclass($1) IS NOT NULL"
	}
	err = m.db.QueryRowContext(ctx, query, m.versions()).Scan(&found)
	return found, err
}

func (m *Migrator) provider() (*goose.Provider, error) {
	dialect := goose.DialectMySQL
	if m.dialect == schema.Postgres {
		dialect = goose.DialectPostgres
	}
	// Its Close would close the pool, which is the caller's.
	return goose.NewProvider(dialect, m.db, m.files, goose.WithTableName(m.versions()), goose.WithDisableGlobalRegistry(true))
}

// locked runs what changes the tables while nobody else does: the library has a
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
	lock, release := "SELECT GET_LOCK(CONCAT(DATABASE(), '.', ?), 30)", "SELECT RELEASE_LOCK(CONCAT(DATABASE(), '.', ?))"
	if m.dialect == schema.Postgres {
		lock, release = "SELECT 1 FROM pg_advisory_lock(hashtext($1))", "SELECT 1 FROM pg_advisory_unlock(hashtext($1))"
	}
	waiting, cancel := context.WithTimeoutCause(ctx, lockPatience, errLocked)
	defer cancel()
	var got sql.NullInt64
	if err := conn.QueryRowContext(waiting, lock, m.versions()).Scan(&got); err != nil {
		if cause := context.Cause(waiting); cause != nil {
			err = errors.Join(cause, err)
		}
		return nil, err
	}
	if got.Int64 != 1 {
		return nil, errLocked
	}
	return func() error {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), release, m.versions())
		return err
	}, nil
}

func stepsOf(results []*goose.MigrationResult) []Step {
	var steps []Step
	for _, r := range results {
		if r != nil && r.Error == nil {
			steps = append(steps, Step{Version: r.Source.Version, Name: r.Source.Path})
		}
	}
	return steps
}
