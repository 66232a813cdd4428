package trial

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os/exec"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the producers' driver

	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// producerConnections is how many connections the producers may have.
const producerConnections = 60

// Database is a real database with an outbox, and a table of the producers' own:
// a transaction's row is there if it was committed, and only then.
type Database struct {
	// Kind is "postgres" or "mariadb".
	Kind   string
	Server *service.Server
	DB     *sql.DB

	dialect outbox.Dialect
	driver  string
	dsn     string
	// reverter is nil if the database cannot be reverted.
	reverter *reverter
}

// silence keeps the driver from logging what it returns, too. It changes the whole process, so several tests at once must not.
var silence = sync.OnceFunc(func() { _ = mysql.SetLogger(&mysql.NopLogger{}) })

// StartDatabase starts the database of that kind, durable; where it shall be
// reverted, with what that needs.
func StartDatabase(ctx context.Context, kind string, reverts bool) (*Database, error) {
	d := &Database{Kind: kind, dialect: outbox.MySQL, driver: "mysql"}
	start := service.StartMariaDB
	if kind == "postgres" {
		d.dialect, d.driver, start = outbox.PostgreSQL, "pgx", service.StartPostgres
	}
	var err error
	if d.Server, err = start(ctx, ""); err != nil {
		return nil, err
	}
	d.dsn = d.Server.URL()
	if reverts {
		if err := d.prepareRevert(ctx); err != nil {
			return d, err
		}
	}
	silence()
	if d.DB, err = sql.Open(d.driver, d.dsn); err != nil {
		return d, err
	}
	d.DB.SetMaxOpenConns(producerConnections)
	d.DB.SetMaxIdleConns(producerConnections)
	_, err = d.DB.ExecContext(ctx, "CREATE TABLE business (id varchar(40) PRIMARY KEY)")
	return d, err
}

// section is the outbox of a configuration. The horizon is short, so that some
// messages wait in their rows; keys may say otherwise.
func (d *Database) section(keys string) string {
	return fmt.Sprintf("outbox: {driver: %s, dsn: %q, %s}", d.dialect, d.dsn, cmp.Or(keys, "horizon: 5s"))
}

// bind writes a placeholder as the dialect has it.
func (d *Database) bind() string {
	if d.dialect == outbox.PostgreSQL {
		return "$1"
	}
	return "?"
}

// committed returns the ids of the committed transactions.
func (d *Database) committed(ctx context.Context) (map[string]bool, error) {
	found := map[string]bool{}
	rows, err := d.DB.QueryContext(ctx, "SELECT id FROM business")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		found[id] = true
	}
	return found, rows.Err()
}

// outboxRow is a row of the outbox as the table has it.
type outboxRow struct {
	number, dueMs int64
	op, status    int
	reason        string
}

// outboxRows are all rows by message, in the order of their revisions.
func (d *Database) outboxRows(ctx context.Context) (map[string][]outboxRow, error) {
	list := map[string][]outboxRow{}
	rows, err := d.DB.QueryContext(ctx, "SELECT id, message_id, op, status, due_ms, reason FROM delay_outbox ORDER BY id")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var r outboxRow
		var id []byte
		if err := rows.Scan(&r.number, &id, &r.op, &r.status, &r.dueMs, &r.reason); err != nil {
			return nil, err
		}
		list[string(id)] = append(list[string(id)], r)
	}
	return list, rows.Err()
}

// unfinished counts the rows that the bridge still has to process.
func (d *Database) unfinished(ctx context.Context) (pending, stored int, err error) {
	const query = "SELECT COALESCE(SUM(CASE WHEN status = 0 THEN 1 ELSE 0 END), 0)," +
		" COALESCE(SUM(CASE WHEN status = 1 AND op = 0 THEN 1 ELSE 0 END), 0) FROM delay_outbox"
	err = d.DB.QueryRowContext(ctx, query).Scan(&pending, &stored)
	return pending, stored, err
}

// Pending is how many rows the relays have yet to take.
func (d *Database) Pending(ctx context.Context) (n int, err error) {
	err = d.DB.QueryRowContext(ctx, "SELECT count(*) FROM delay_outbox WHERE status = 0").Scan(&n)
	return n, err
}

// Overdue is how many messages of rows were due at an instant, and are not known to be out.
func (d *Database) Overdue(ctx context.Context, at time.Time) (n int, err error) {
	const query = "SELECT count(*) FROM delay_outbox WHERE op = 0 AND status < 2 AND due_ms < "
	err = d.DB.QueryRowContext(ctx, query+d.bind(), at.UnixMilli()).Scan(&n)
	return n, err
}

// Locked reports whether somebody has locked a message's row.
func (d *Database) Locked(ctx context.Context, id string) (bool, error) {
	tx, err := d.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }()
	var number int64
	query := "SELECT id FROM delay_outbox WHERE queue = '" + queueName + "' AND message_key = '' AND op = 0 AND status < 2 AND message_id = " +
		d.bind() + " FOR UPDATE SKIP LOCKED"
	err = tx.QueryRowContext(ctx, query, id).Scan(&number)
	if errors.Is(err, sql.ErrNoRows) {
		return true, nil
	}
	return false, err
}

// Outbox is the producers' side, with the fast path and compensation messages.
func (w *World) Outbox(ctx context.Context) (box *outbox.Outbox, end func(), err error) {
	publish, end, err := w.Broker.Publisher(publishLimit)
	if err != nil {
		return nil, nil, err
	}
	return outbox.New(w.Database.dialect, outbox.WithRedis(w.RDB, w.setup.Prefix), outbox.WithCompensation(publish)), end, nil
}

// close stops the server.
func (d *Database) close() {
	if d.DB != nil {
		_ = d.DB.Close()
	}
	if d.reverter != nil {
		d.reverter.close()
	}
	d.Server.Close()
}

// Migrate makes the tables of the configuration's outbox.
func (b *Bridge) Migrate(ctx context.Context) error {
	output, err := exec.CommandContext(ctx, b.binary, "outbox", "migrate", "up", "--config", b.Config).CombinedOutput()
	if err != nil {
		return fmt.Errorf("migrate the outbox: %w: %s", err, output)
	}
	return nil
}
