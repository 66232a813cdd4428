// Package inbox lets a consumer apply each message once, although copies of it may arrive: the message's
// uid is noted in the transaction that applies it, so that both happen or neither, and a copy finds the note.
//
//	box, err := inbox.New(inbox.PostgreSQL, "mailer")
//	…
//	first, err := box.Once(ctx, db, delivery.UID, func(tx *sql.Tx) error {
//		_, err := tx.ExecContext(ctx, "UPDATE orders SET state = 'expired' WHERE id = $1", order)
//		return err
//	})
//	// Acknowledge the message if err is nil, whether it was the first or a copy.
//
// What is outside of the database, such as a mail, is not part of the transaction: let the transaction write
// what is to be done, for example as a row of package outbox.
package inbox

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Dialect is the SQL that the database speaks.
type Dialect string

// The dialects. MySQL also stands for MariaDB.
const (
	PostgreSQL Dialect = "postgres"
	MySQL      Dialect = "mysql"
)

// DefaultTable is the name of the table unless [WithTable] gives another one.
const DefaultTable = "delay_inbox"

// Limits of names, in bytes.
const (
	maxConsumer = 64
	maxUID      = 300
)

// Inbox notes uids in a table of one database. It is safe for concurrent use, holds no connection and no
// goroutine, and needs no Close.
type Inbox struct {
	dialect         Dialect
	consumer, table string
}

// Option changes an inbox' default.
type Option func(*Inbox)

// WithTable sets the table's name. A name has 1 to 41 of a-z 0-9 _ and does not begin with a digit. Put the
// schema and a dot before it if the session would look elsewhere: "app.delay_inbox". In MySQL, a schema is a
// database.
func WithTable(name string) Option { return func(b *Inbox) { b.table = name } }

var tableName = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,40}\.)?[a-z_][a-z0-9_]{0,40}$`)

// New returns the inbox of a consumer. Each consumer, 1 to 64 bytes, applies each message once: name what
// reads the topic, not the process, and never give two jobs one name. The error is [delay.ErrInvalid].
func New(dialect Dialect, consumer string, options ...Option) (*Inbox, error) {
	b := &Inbox{dialect: dialect, consumer: consumer, table: DefaultTable}
	for _, option := range options {
		option(b)
	}
	switch {
	case dialect != PostgreSQL && dialect != MySQL:
		return nil, invalid("dialect", string(dialect), "postgres or mysql")
	case !fits(consumer, maxConsumer):
		return nil, invalid("consumer", consumer, "1 to 64 bytes without a NUL")
	case !tableName.MatchString(b.table):
		return nil, invalid("table", b.table, "1 to 41 of a-z 0-9 _, the first no digit, with or without a schema of the same form before it")
	}
	return b, nil
}

func invalid(field, value, rule string) error {
	return fmt.Errorf("%w: %w", delay.ErrInvalid, &message.InvalidError{Field: field, Value: value, Limit: rule})
}

func fits(text string, most int) bool {
	return text != "" && len(text) <= most && !strings.ContainsRune(text, 0)
}

//go:embed postgres/*.sql mysql/*.sql
var statements embed.FS

// statement returns the text of a file for this inbox' table.
func (b *Inbox) statement(name string) string {
	text, err := statements.ReadFile(path.Join(string(b.dialect), name+".sql"))
	if err != nil {
		panic(err) // The file is in the program.
	}
	_, unqualified, found := strings.Cut(b.table, ".")
	if !found {
		unqualified = b.table
	}
	return strings.NewReplacer(DefaultTable+"_", unqualified+"_", DefaultTable, b.table).Replace(string(text))
}

// Schema returns the statements that make the table unless it is there, for a migration. Each ends with a
// semicolon and a line break.
func (b *Inbox) Schema() string { return b.statement("table") }

// Tx is the transaction that applies the message: a [*sql.Tx], a pgx.Tx that package pgxtx has wrapped, or
// another library's equivalent. Commit is never called here. It is in the interface so that a [*sql.DB], which
// lacks it, does not compile: the note would remain although the transaction is rolled back.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	Commit() error
}

// Record notes in the transaction that this consumer applies the message with that uid, 1 to 300 bytes,
// [delay.Delivery.UID] of its headers, and reports whether it is the first. If it is not, apply nothing.
//
// While another transaction that noted the same uid is open, Record waits for its end: a copy that arrives
// beside its message is applied if that one is rolled back. A transaction above read committed may fail with a
// serialization error instead, and in MySQL with a deadlock: then nothing was noted, so roll back and repeat.
// Call it before the rest, so that a copy costs little.
func (b *Inbox) Record(ctx context.Context, tx Tx, uid string) (first bool, err error) {
	if !fits(uid, maxUID) {
		return false, invalid("uid", uid, "1 to 300 bytes without a NUL")
	}
	result, err := tx.ExecContext(ctx, b.statement("record"), b.consumer, uid) // Both were checked, so MySQL ignores nothing but a copy.
	if err != nil {
		return false, fmt.Errorf("inbox: note uid: %w", err)
	}
	n, err := result.RowsAffected()
	if err != nil {
		return false, fmt.Errorf("inbox: note uid: %w", err)
	}
	return n == 1, nil
}

// Once applies a message in a transaction of its own unless this consumer has applied it, and reports whether
// it did. If apply returns an error, nothing remains, and Once returns that error. After any error the message
// must be delivered again: if the connection was lost at the commit, the next call finds out what became of it.
func (b *Inbox) Once(ctx context.Context, db *sql.DB, uid string, apply func(tx *sql.Tx) error) (first bool, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, fmt.Errorf("inbox: begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // Has no effect after the commit.
	if first, err = b.Record(ctx, tx, uid); err != nil || !first {
		return false, err
	}
	if err := apply(tx); err != nil {
		return false, err
	}
	if err := tx.Commit(); err != nil {
		return false, fmt.Errorf("inbox: commit: %w", err)
	}
	return true, nil
}

const (
	// shortest is the least that notes are kept: a bridge may publish a copy minutes after the message.
	shortest = time.Hour
	// batch is how many notes one statement deletes, so that it holds few locks.
	batch = 1000
)

// Trim deletes the notes of all consumers that are older than keep, by the database's clock, at least an hour,
// and returns how many. A copy of a message whose note is gone is applied again, so keep them for as long as the
// broker may deliver a message again, and as far back as Redis may be restored: a week is a good start. Call it
// now and then, from one place or several. Each statement deletes at most 1,000.
func (b *Inbox) Trim(ctx context.Context, db *sql.DB, keep time.Duration) (deleted int64, err error) {
	if keep < shortest {
		return 0, invalid("keep", keep.String(), "at least "+shortest.String())
	}
	for {
		result, err := db.ExecContext(ctx, b.statement("trim"), int64(keep/time.Second), batch)
		if err != nil {
			return deleted, fmt.Errorf("inbox: trim: %w", err)
		}
		n, err := result.RowsAffected()
		if err != nil {
			return deleted, fmt.Errorf("inbox: trim: %w", err)
		}
		if deleted += n; n < batch {
			return deleted, nil
		}
	}
}
