package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// readCounter is a transaction that tells how much its statements read: rows, or blocks in
// PostgreSQL.
type readCounter struct {
	t        *testing.T
	tx       *sql.Tx
	postgres bool
	read     int
}

func (*readCounter) Commit() error { return nil }

func (c *readCounter) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	c.explain(ctx, query, args)
	return c.tx.ExecContext(ctx, query, args...)
}

func (c *readCounter) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	c.explain(ctx, query, args)
	return c.tx.QueryRowContext(ctx, query, args...)
}

// explain counts what a statement reads, and takes back what it writes.
func (c *readCounter) explain(ctx context.Context, query string, args []any) {
	if !c.postgres {
		return
	}
	_, err := c.tx.ExecContext(ctx, "SAVEPOINT asked")
	require.NoError(c.t, err)
	rows, err := c.tx.QueryContext(ctx, "EXPLAIN (ANALYZE, BUFFERS) "+query, args...)
	require.NoError(c.t, err)
	for first := true; rows.Next(); {
		var line string
		require.NoError(c.t, rows.Scan(&line))
		found := regexp.MustCompile(`Buffers: shared (?:hit=(\d+))?(?: ?read=(\d+))?`).FindStringSubmatch(line)
		if found == nil || !first {
			continue
		}
		first = false // It holds those of all that is below.
		for _, n := range found[1:] {
			blocks, _ := strconv.Atoi(n) // Nothing if there were none.
			c.read += blocks
		}
	}
	require.NoError(c.t, rows.Close())
	_, err = c.tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT asked")
	require.NoError(c.t, err)
}

// count runs a call.
func (c *readCounter) count(ctx context.Context, call func(outbox.Tx) error) {
	if c.postgres {
		require.NoError(c.t, call(c))
		return
	}
	before := c.handled(ctx)
	require.NoError(c.t, call(c))
	c.read = c.handled(ctx) - before
}

// handled is how many rows the session has read until now, in MySQL.
func (c *readCounter) handled(ctx context.Context) (read int) {
	rows, err := c.tx.QueryContext(ctx, "SHOW SESSION STATUS WHERE Variable_name LIKE 'Handler_read%' OR Variable_name = 'Handler_icp_attempts'")
	require.NoError(c.t, err)
	for rows.Next() {
		var name string
		var n int
		require.NoError(c.t, rows.Scan(&name, &n))
		read += n
	}
	require.NoError(c.t, rows.Close())
	return read
}

// TestHistoryCostsNothing: what a call reads does not depend on how often its message was
// rescheduled before.
func TestHistoryCostsNothing(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *database{
		"postgres": func(t *testing.T) *database { return openSQL(t, "pgx", outbox.PostgreSQL, testenv.Postgres(t)) },
		"mariadb":  func(t *testing.T) *database { return openSQL(t, "mysql", outbox.MySQL, testenv.MariaDB(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := open(t)
			db.migrate(t)
			box, postgres := outbox.New(db.dialect), db.dialect == outbox.PostgreSQL
			live, ended := delay.Ref{ID: "live"}, delay.Ref{ID: "ended"}
			for _, ref := range []delay.Ref{live, ended} {
				_, err := box.Schedule(t.Context(), db, "orders", delay.Message{ID: ref.ID, Topic: "t"}, delay.After(0))
				require.NoError(t, err)
			}
			measure := func() map[string]int {
				read := map[string]int{}
				for name, call := range map[string]func(tx outbox.Tx) error{
					"reschedule": func(tx outbox.Tx) error { return box.Reschedule(t.Context(), tx, "orders", live, delay.After(0)) },
					"cancel":     func(tx outbox.Tx) error { return box.Cancel(t.Context(), tx, "orders", ended) },
					"schedule": func(tx outbox.Tx) error {
						_, err := box.Schedule(t.Context(), tx, "orders", delay.Message{ID: ended.ID, Topic: "t"}, delay.After(0))
						return err
					},
					"get live": func(tx outbox.Tx) error { _, err := box.Get(t.Context(), tx, "orders", live); return err },
					"get":      func(tx outbox.Tx) error { _, err := box.Get(t.Context(), tx, "orders", ended); return err },
				} {
					tx, err := db.BeginTx(t.Context(), nil)
					require.NoError(t, err)
					counted := &readCounter{t: t, tx: tx, postgres: postgres}
					counted.count(t.Context(), call)
					require.NoError(t, tx.Rollback())
					read[name] = counted.read
				}
				return read
			}
			slide := func(times int) {
				series, settle := fmt.Sprintf("JSON_TABLE(CONCAT('[0', REPEAT(',0', %d - 1), ']'), '$[*]' COLUMNS (n INT PATH '$')) n", times), "ANALYZE TABLE delay_outbox"
				if postgres {
					series, settle = fmt.Sprintf("generate_series(1, %d) n", times), "VACUUM ANALYZE delay_outbox"
				}
				db.run(t, "INSERT INTO delay_outbox (queue, message_id, op, status, due_ms, finished_ms, target)"+
					" SELECT queue, message_id, 2, 1, 5, 5, id FROM delay_outbox, "+series+" WHERE op = 0")
				db.run(t, "UPDATE delay_outbox SET revision = (SELECT max(id) FROM (SELECT * FROM delay_outbox) o WHERE o.message_id = delay_outbox.message_id) WHERE op = 0")
				db.run(t, settle)
			}
			slide(1)
			db.run(t, "UPDATE delay_outbox SET status = 2, finished_ms = 5 WHERE op = 0 AND message_id = 'ended'")
			before := measure()
			slide(5000)
			after := measure()
			t.Logf("read before %v, after 5000 reschedules of each %v", before, after)
			for name, n := range after {
				require.Less(t, n, before[name]+100, name)
			}
		})
	}
}
