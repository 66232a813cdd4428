package table

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
)

const (
	// defaultConnections is enough for two lanes, the settler and the auditor.
	defaultConnections = 8
	// statementTimeout limits one statement; none of ours reads much.
	statementTimeout = 10 * time.Second
	// connectTimeout limits the connection that listens.
	connectTimeout = 5 * time.Second
	// idleTimeout is below wait_timeout of the MySQL sessions.
	idleTimeout = 60 * time.Second
	// connectionLife lets the pool follow a failover behind one name, see Heed.
	connectionLife = 5 * time.Minute
)

// Config describes a [Database].
type Config struct {
	// Dialect is schema.Postgres or schema.MySQL, which also stands for MariaDB.
	Dialect schema.Dialect
	// Source's DSN is a URL or key=value list for PostgreSQL, and for MySQL
	// "user:password@tcp(host:port)/database".
	Source sqldb.Source
	// Table is the outbox's table, default delay_outbox, see [schema.CheckTable].
	Table string
	// Connections bounds the pool, default 8.
	Connections int
	// Discard deletes a message's row at once when the message was published.
	Discard bool
	// Trace, if set, is called for each statement of a relay, for measurements. It is
	// called from several goroutines, and the relay waits for it.
	Trace func(Statement)
}

// Statement is a statement that was run.
type Statement struct {
	Query string
	Args  []any
	// Beginning is the first statement of its transaction, empty outside one.
	Beginning string
	// Took is how long it took, including reading all rows.
	Took time.Duration
}

// Database is a database with an outbox. It has a pool of its own, so that it
// takes connections from nobody else. It is safe for concurrent use.
type Database struct {
	db      *sql.DB
	dialect *dialect
	words   *strings.Replacer // of [Database.query]
	table   string            // with its schema
	name    string            // without
	keeps   bool              // rows whose message was published
	idle    int               // connections that are kept
	trace   func(Statement)   // nil: not traced
	// listen makes the connection of Listen; nil: no notifications.
	listen func(context.Context) (*pgx.Conn, error)
	// No pending operations are listed before that time; nil: no limit.
	nextListing atomic.Pointer[time.Time]
}

// Open returns the database; it does no I/O, see [Database.Check]. The caller
// closes it. The error is one of the configuration, and shows no password.
func Open(config Config) (*Database, error) {
	if config.Table == "" {
		config.Table = schema.DefaultTable
	}
	if err := schema.CheckTable(config.Table); err != nil {
		return nil, err
	}
	if config.Connections <= 0 {
		config.Connections = defaultConnections
	}
	_, name := schema.Split(config.Table)
	d := &Database{table: config.Table, name: name, keeps: !config.Discard, idle: config.Connections, trace: config.Trace}
	var err error
	switch config.Dialect {
	case schema.Postgres:
		err = d.openPostgres(config.Source)
	case schema.MySQL:
		err = d.openMySQL(config.Source)
	default:
		err = fmt.Errorf("dialect %q: postgres or mysql", config.Dialect)
	}
	if err != nil {
		return nil, err
	}
	d.words = strings.NewReplacer("{t}", d.table, "{name}", d.name, "{now}", d.dialect.now, "{size}", d.dialect.size,
		"{headers}", d.dialect.headers, "{live}", d.dialect.live, "{operation}", d.dialect.operation)
	d.db.SetMaxOpenConns(config.Connections)
	d.db.SetMaxIdleConns(config.Connections)
	d.db.SetConnMaxIdleTime(idleTimeout)
	d.db.SetConnMaxLifetime(connectionLife)
	return d, nil
}

// Table is the name of the table.
func (d *Database) Table() string { return d.table }

// Pending reads the rows that a relay has to take.
func (d *Database) Pending() PendingRows { return PendingRows{d} }

// Stored reads the rows that say that Redis has their messages.
func (d *Database) Stored() StoredRows { return StoredRows{d} }

// Ended records ends in rows, and purges ended ones.
func (d *Database) Ended() EndedRows { return EndedRows{d} }

// Listing reads all rows, for operators.
func (d *Database) Listing() Listing { return Listing{d} }

// Refused makes refused rows pending again.
func (d *Database) Refused() RefusedRows { return RefusedRows{d} }

// Heed drops the idle connections if one has led to a read-only server: that one is
// a standby now, and the name leads to another one.
func (d *Database) Heed(err error) {
	if isReadOnly(err) {
		d.db.SetMaxIdleConns(-1)
		d.db.SetMaxIdleConns(d.idle)
	}
}

// Close closes the pool.
func (d *Database) Close() error { return d.db.Close() }

// openPostgres prepares nothing on the server, so that a pooler may give each
// transaction a different session; each transaction sets what it needs.
func (d *Database) openPostgres(source sqldb.Source) (err error) {
	d.dialect = &postgres
	d.listen = func(ctx context.Context) (*pgx.Conn, error) {
		config, err := source.Postgres()
		if err != nil {
			return nil, err
		}
		conn, err := pgx.ConnectConfig(ctx, config)
		return conn, source.Explain(err)
	}
	d.db, err = source.Pool(func() (driver.Connector, error) {
		config, err := source.Postgres()
		if err != nil {
			return nil, fmt.Errorf("dsn %w", err)
		}
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
		return stdlib.GetConnector(*config), nil
	})
	return err
}

func (d *Database) openMySQL(source sqldb.Source) (err error) {
	d.dialect = &mysqlDialect
	d.db, err = source.Pool(func() (driver.Connector, error) {
		config, err := source.MySQL()
		if err != nil {
			return nil, fmt.Errorf("dsn %w", err)
		}
		return mysqlSession(config)
	})
	return err
}

// mysqlSession sets up our sessions of MySQL.
func mysqlSession(config *mysql.Config) (driver.Connector, error) {
	config.InterpolateParams = true // One round trip a statement.
	config.ClientFoundRows = true
	config.RejectReadOnly = true // Errors 1290, 1792 and 1836 of a standby drop their connection.
	config.Params["time_zone"] = "'+00:00'"
	// A lock that skips nothing waits for a producer, and others wait meanwhile for what it holds.
	config.Params["innodb_lock_wait_timeout"] = "1"
	// A relay whose machine has vanished holds its locks no longer than this. MariaDB, which alone
	// reads such a comment, makes a join of a list of a thousand numbers, and may go over the
	// whole table for it, whatever index is named, and lock what others want.
	config.Params["wait_timeout"] = "120 /*M!, in_predicate_conversion_threshold = 0 */"
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, errors.New("dsn has parameters that contradict each other")
	}
	return connector, nil
}

// begin starts a transaction at READ COMMITTED: without gap locks in MySQL, and
// each statement sees earlier commits.
func (d *Database) begin(ctx context.Context) (*Tx, error) {
	tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, fmt.Errorf("begin transaction: %w", err)
	}
	if d.dialect.beginning != "" {
		if _, err := tx.ExecContext(ctx, d.dialect.beginning); err != nil {
			_ = tx.Rollback()
			return nil, fmt.Errorf("set up transaction: %w", err)
		}
	}
	return &Tx{d, tx}, nil
}

// Within runs work in a transaction and commits it, or rolls it back if work
// fails. Each statement has 10 s, the whole as long as ctx.
func (d *Database) Within(ctx context.Context, work func(t *Tx) error) error {
	t, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer func() {
		_ = t.tx.Rollback() // Nothing, if it was committed.
	}()
	if err := work(t); err != nil {
		return err
	}
	return t.tx.Commit()
}

// Clock returns the database's time in milliseconds since 1970, and the instant at
// which it was read.
func (d *Database) Clock(ctx context.Context) (ms int64, read time.Time, err error) {
	before := time.Now()
	err = d.query("SELECT {now}").each(ctx, d.db, func(rows *sql.Rows) error { return rows.Scan(&ms) })
	if err != nil {
		err = fmt.Errorf("read the database's clock: %w", err)
	}
	return ms, before.Add(time.Since(before) / 2), err
}
