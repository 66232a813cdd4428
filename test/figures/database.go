package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// What a server of its own machine would have; all else, and fsync before all, is
// as the databases come.
const (
	postgresMemory = "shared_buffers = 1GB\nmax_wal_size = 8GB\n"
	mariaMemory    = "innodb_buffer_pool_size = 1G\ninnodb_log_file_size = 2G\n"
)

// planWidth is how much of a line of a plan is printed.
const planWidth = 160

// database is a server with an empty outbox.
type database struct {
	name, dsn, version string
	dialect            schema.Dialect
	server             *service.Server
	*sql.DB
}

func startDatabase(ctx context.Context, name string) (*database, error) {
	d := &database{name: name, dialect: schema.Postgres}
	var err error
	settings := "shared_buffers 1 GiB, fsync on"
	switch name {
	case "postgres":
		d.server, err = service.StartPostgres(ctx, postgresMemory)
	case "mariadb":
		d.dialect, settings = schema.MySQL, "buffer pool 1 GiB, flush at each commit"
		d.server, err = service.StartMariaDB(ctx, mariaMemory)
	default:
		err = errors.New("no such database: postgres or mariadb")
	}
	if err != nil {
		return nil, err
	}
	d.dsn = d.server.URL()
	dsn := d.dsn
	if d.dialect == schema.MySQL {
		dsn += "&interpolateParams=true" // ANALYZE cannot be prepared.
	}
	if d.DB, err = sqldb.Open(d.dialect, dsn); err == nil {
		err = d.prepare(ctx)
	}
	if err != nil {
		d.close()
		return nil, err
	}
	d.version = d.version + ", " + settings
	return d, nil
}

func (d *database) prepare(ctx context.Context) error {
	statements, err := schema.Up(d.dialect, schema.DefaultTable)
	for _, statement := range statements {
		if err == nil {
			_, err = d.ExecContext(ctx, statement)
		}
	}
	if err != nil {
		return err
	}
	return d.QueryRowContext(ctx, "SELECT version()").Scan(&d.version)
}

func (d *database) close() {
	if d.DB != nil {
		_ = d.Close()
	}
	d.server.Close()
}

// filling are rows of which nobody measures the lateness.
type filling struct {
	queue, ids, topic string
	count, body       int           // body in bytes, a multiple of 32
	first             time.Time     // the earliest due time
	over              time.Duration // from the first to the last
	mixed             bool          // in no order of time, as producers write them; it takes longer
}

// fill writes rows. The server makes them itself.
func (d *database) fill(ctx context.Context, r filling) error {
	const chunk = 100000
	seq, divide, from := "seq", "DIV", "seq_%d_to_%d"
	token, body := "CONCAT('~', LPAD(seq, 15, '0'))", "REPEAT(MD5(seq), %d)"
	if d.dialect == schema.Postgres {
		seq, divide, from = "seq::bigint", "/", "generate_series(%d, %d) AS s(seq)"
		token, body = "'~' || LPAD(seq::text, 15, '0')", "convert_to(repeat(md5(seq::text), %d), 'UTF8')"
	}
	if r.mixed { // They follow each other at steps of a prime number.
		seq = fmt.Sprintf("((%s * 7919) %% %d)", seq, r.count)
	}
	statement := fmt.Sprintf("INSERT INTO %s (queue, message_id, token, topic, body, due_ms) "+
		"SELECT '%s', CONCAT('%s-', seq), %s, '%s', "+body+", %d + %s * %d %s 1000 FROM ",
		schema.DefaultTable, r.queue, r.ids, token, r.topic, r.body/32, r.first.UnixMilli(), seq, r.over.Microseconds()/int64(r.count), divide)
	for first := 1; first <= r.count; first += chunk {
		if _, err := d.ExecContext(ctx, statement+fmt.Sprintf(from, first, min(r.count, first+chunk-1))); err != nil {
			return err
		}
	}
	return nil
}

func (d *database) number(ctx context.Context, query string) (n int64, err error) {
	return n, d.QueryRowContext(ctx, query).Scan(&n)
}

func (d *database) size(ctx context.Context) (int64, error) {
	if d.dialect == schema.Postgres {
		return d.number(ctx, "SELECT pg_total_relation_size('"+schema.DefaultTable+"')")
	}
	return d.number(ctx, "SELECT file_size FROM information_schema.innodb_sys_tablespaces WHERE name LIKE '%/"+schema.DefaultTable+"'")
}

func (d *database) transact(ctx context.Context, work func(outbox.Tx) error) error {
	tx, err := d.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// schedule is how producers schedule messages of a queue, each batch in a
// transaction.
func (d *database) schedule(queue string) schedule {
	box := outbox.New(d.dialect)
	return func(ctx context.Context, requests []delay.Request) (results []delay.Result, err error) {
		err = d.transact(ctx, func(tx outbox.Tx) (err error) {
			results, err = box.ScheduleBatch(ctx, tx, queue, requests)
			return err
		})
		return results, err
	}
}

// explain prints how a statement is run, and fails where one that looks for rows
// does without the index of pending ones.
func (d *database) explain(ctx context.Context, h *outlooking, kind string, s table.Statement) error {
	tx, err := d.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // It was for looking only.
	if s.Beginning != "" {
		if _, err := tx.ExecContext(ctx, s.Beginning); err != nil {
			return err
		}
	}
	verb := "EXPLAIN (ANALYZE, COSTS OFF, BUFFERS) "
	if d.dialect == schema.MySQL {
		verb = "ANALYZE "
	}
	rows, err := tx.QueryContext(ctx, verb+s.Query, s.Args...)
	if err != nil {
		return err
	}
	plan, err := lines(rows)
	if err != nil {
		return err
	}
	for i, line := range plan {
		if len(line) > planWidth {
			plan[i] = line[:planWidth] + " ..." // The numbers of 500 rows.
		}
	}
	h.say("%s:\n    %s", kind, strings.Join(plan, "\n    "))
	if strings.Contains(s.Query, "load_ms") && !strings.Contains(strings.Join(plan, "\n"), schema.DefaultTable+"_due") {
		return errors.New("the index of pending rows is not used")
	}
	return nil
}

// lines are the rows as text.
func lines(rows *sql.Rows) (list []string, err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values := make([]sql.NullString, len(columns))
	targets := make([]any, len(columns))
	for i := range values {
		targets[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(targets...); err != nil {
			return nil, err
		}
		text := values[0].String
		if len(columns) > 1 {
			text = ""
			for i, value := range values {
				if value.Valid && columns[i] != "possible_keys" {
					text += columns[i] + "=" + value.String + "  "
				}
			}
		}
		list = append(list, strings.TrimRight(text, " "))
	}
	return list, rows.Err()
}
