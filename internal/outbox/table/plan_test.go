package table_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// statement is one of ours.
type statement interface {
	Statement() (text string, args []any)
}

// plan is how the database would run a statement.
func plan(t *testing.T, on outboxtest.Runner, s statement) string {
	t.Helper()
	text, args := s.Statement()
	return explain(t, on, "EXPLAIN "+text, args...)
}

// explain is what the database says about a statement.
func explain(t *testing.T, on outboxtest.Runner, query string, args ...any) string {
	t.Helper()
	rows, err := on.QueryContext(t.Context(), query, args...)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	names, err := rows.Columns()
	require.NoError(t, err)
	cells, into := make([]sql.NullString, len(names)), make([]any, len(names))
	for i := range cells {
		into[i] = &cells[i]
	}
	var found strings.Builder
	for rows.Next() {
		require.NoError(t, rows.Scan(into...))
		for i := range cells {
			_, _ = fmt.Fprintf(&found, "%s=%s ", names[i], cells[i].String)
		}
		found.WriteString("\n")
	}
	require.NoError(t, rows.Err())
	return found.String()
}

// TestPlansOfAFreshTable: PostgreSQL looks up each identity by the index also
// where its statistics are from when there was nothing to do, as in the first
// minutes of a burst.
func TestPlansOfAFreshTable(t *testing.T) {
	t.Parallel()
	d := outboxtest.Open(t, schema.Postgres, testenv.Postgres(t))
	s := outboxtest.NewScene(t, d)
	d.Exec(t, "ALTER TABLE {t} SET (autovacuum_enabled = false)")
	s.Insert(outboxtest.Insert{ID: "first", State: table.StateStored, DueMs: 5})
	d.Analyze(t)
	const rows = 5000
	for op, status := range []int{0, 0, 2} {
		d.Exec(t, "INSERT INTO {t} (queue, message_id, op, status, topic, due_ms) SELECT ?, 'id-' || n, ?, ?, 't', 5 FROM generate_series(1, ?::int) n",
			s.Orders, op, status, rows)
	}
	var list []table.Identity
	for i := range 500 {
		list = append(list, table.Identity{Queue: s.Orders, Key: "", ID: fmt.Sprint("id-", i*7)})
	}
	require.NoError(t, d.Within(t.Context(), func(tx *table.Tx) error {
		for name, q := range map[string]statement{
			"open":   d.QueryOpen(list),
			"ended":  d.QueryEnded(list),
			"recent": d.QueryRecent(list),
			"heads":  d.QueryHeads(table.Work{Queue: s.Orders, Operations: true, UntilMs: time.Now().UnixMilli(), Most: 500}),
		} {
			plan := plan(t, tx.SQL(), q)
			require.NotContains(t, plan, "Seq Scan", name)
			require.Contains(t, plan, "message_id = ", name)
			for line := range strings.Lines(plan) {
				require.False(t, strings.Contains(line, "Join Filter") || strings.Contains(line, "Sort"), "%s: %s", name, plan)
			}
		}
		return nil
	}))
}

// TestPlansOfALargeTable: each statement goes by its index.
func TestPlansOfALargeTable(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := outboxtest.NewScene(t, d)
		s.InsertMany(10_000, outboxtest.Far)
		for _, suffix := range []string{"a", "b", "c"} {
			longer := "concat(message_id, ?)"
			if d.IsPostgres() {
				longer = "message_id || ?"
			}
			d.Exec(t, "INSERT INTO {t} (queue, message_key, message_id, status, topic, body, due_ms, token)"+
				" SELECT queue, message_key, "+longer+", status, topic, body, due_ms, token FROM {t}", suffix)
		}
		d.Exec(t, "UPDATE {t} SET status = 2, finished_ms = 1 WHERE id % 2 = 0")
		d.Analyze(t)
		var list []table.Identity
		for i := range 500 {
			list = append(list, table.Identity{Queue: s.Orders, Key: "k", ID: fmt.Sprintf("many-%d", i*7)})
		}
		requireIndex(t, d, d.QueryOpen(list), "box_live", "box_open")
		requireIndex(t, d, d.QueryOpen(list), "box_operations", "box_open")
		requireIndex(t, d, d.QueryEnded(list), "box_history", "box_history")
		requireIndex(t, d, d.QueryRecent(list[:50]), "box_history", "box_history")
		requireIndex(t, d, d.QueryStored(table.Columns, s.Orders, table.Cursor{Ms: 5, Number: 5}, table.MaxDueMs, 500), "box_stored", "box_due")
		heads := d.QueryHeads(table.Work{Queue: s.Orders, Operations: true, UntilMs: time.Now().UnixMilli(), Most: 500})
		requireIndex(t, d, heads, "box_operations", "box_open")
		requireIndex(t, d, heads, "box_due", "box_due")
		queues := []string{s.Orders, "mails"}
		requireIndex(t, d, d.QueryWaiting(queues), "box_due", "box_due")
		newest, err := d.Pending().Last(t.Context())
		require.NoError(t, err)
		fresh := d.QueryNew(queues, table.Floor{Number: newest - 100, UntilMs: 5}, time.Now().UnixMilli())
		requireIndex(t, d, fresh, "box_due", "key=box_due ")
		requireIndex(t, d, fresh, "box_pkey", "key=PRIMARY ")
		numbers := table.Work{Queue: s.Orders, Operations: true, Numbers: []int64{1, 2, newest}, Most: 500}
		requireIndex(t, d, d.QueryHeads(numbers), "box_pkey", "key=PRIMARY ")
		requireIndex(t, d, d.QueryOperations(numbers), "box_pkey", "key=PRIMARY ")
		requireIndex(t, d, d.QueryTopics(10_000, 30_000, time.Hour, 500), "box_pkey", "key=PRIMARY")
	})
}

func requireIndex(t *testing.T, d *outboxtest.Database, q statement, onPostgres, onMySQL string) {
	t.Helper()
	plan := plan(t, d.SQL, q)
	t.Log(plan)
	if d.IsPostgres() {
		require.Contains(t, plan, onPostgres)
		require.NotContains(t, plan, "Seq Scan on box")
		return
	}
	require.Contains(t, plan, onMySQL)
	for line := range strings.Lines(plan) {
		if strings.Contains(line, "table=box ") || strings.Contains(line, "table=o ") {
			require.NotContains(t, line, "type=ALL ")
			require.NotContains(t, line, "type=index ")
		}
	}
}

// TestChunksOfOneDueTime: where all rows are due at once, a chunk does not read
// again what those before it have read.
func TestChunksOfOneDueTime(t *testing.T) {
	t.Parallel()
	d := outboxtest.Open(t, schema.MySQL, testenv.MariaDB(t))
	s := outboxtest.NewScene(t, d)
	s.InsertMany(10_000, outboxtest.Far)
	d.Exec(t, "UPDATE {t} SET status = 1, due_ms = 5")
	d.Analyze(t) // MariaDB counts a table that changed a while later; until then it may guess a plan.
	var last int64
	require.NoError(t, d.Query(t.Context(), d.SQL, []any{&last}, nil, "SELECT MAX(id) FROM {t}"))
	conn, err := d.SQL.Conn(t.Context()) // What was read is counted by session.
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = conn.ExecContext(t.Context(), "FLUSH STATUS")
	require.NoError(t, err)
	found, read := 0, 0
	text, args := d.QueryStored("id", s.Orders, table.Cursor{Ms: 5, Number: last - 10}, 10, 1000).Statement()
	var id int64
	require.NoError(t, d.Query(t.Context(), conn, []any{&id}, func() { found++ }, text, args...))
	var name string
	var count int
	require.NoError(t, d.Query(t.Context(), conn, []any{&name, &count}, func() { read += count },
		"SHOW SESSION STATUS WHERE Variable_name IN ('Handler_read_next', 'Handler_icp_attempts')"))
	require.Equal(t, 10, found)
	require.Positive(t, read)
	require.Less(t, read, 100)
}
