package table_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// costOf is how much the statements read that work runs and that change nothing, each
// asked again by itself: rows, or blocks in PostgreSQL.
func costOf(t *testing.T, d *outboxtest.Database, work func(d *outboxtest.Database)) (cost int) {
	t.Helper()
	var list []table.Statement
	work(d.With(t, func(c *table.Config) { c.Trace = func(s table.Statement) { list = append(list, s) } }))
	require.NotEmpty(t, list)
	for _, s := range list {
		if !strings.HasPrefix(strings.TrimLeft(s.Query, "( "), "SELECT") {
			continue
		}
		n := costOfOne(t, d, s)
		t.Logf("%d: %.150s", n, s.Query)
		cost += n
	}
	return cost
}

func costOfOne(t *testing.T, d *outboxtest.Database, s table.Statement) (cost int) {
	t.Helper()
	tx, err := d.SQL.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback()) }()
	if s.Beginning != "" {
		_, err := tx.ExecContext(t.Context(), s.Beginning)
		require.NoError(t, err)
	}
	if d.IsPostgres() {
		return blocks(t, explain(t, tx, "EXPLAIN (ANALYZE, BUFFERS) "+s.Query, s.Args...))
	}
	_, err = tx.ExecContext(t.Context(), "FLUSH STATUS")
	require.NoError(t, err)
	explain(t, tx, s.Query, s.Args...)
	var name string
	var n int
	require.NoError(t, d.Query(t.Context(), tx, []any{&name, &n}, func() { cost += n },
		"SHOW SESSION STATUS WHERE Variable_name IN ('Handler_read_key', 'Handler_read_next', 'Handler_read_rnd', 'Handler_read_rnd_next')"))
	return cost
}

// TestPurgeOfOneIdentity: that a message had many rows before does not make it dear to
// purge one of them.
func TestPurgeOfOneIdentity(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := outboxtest.NewScene(t, d)
		s.InsertMany(4000, outboxtest.Soon)
		d.Exec(t, "UPDATE {t} SET status = 2, finished_ms = id")
		d.Exec(t, "UPDATE {t} SET message_key = '', message_id = 'same'")
		s.Insert(outboxtest.Insert{ID: "other", Verb: table.VerbCancel})
		d.Analyze(t)
		cost := costOf(t, d, func(d *outboxtest.Database) {
			_, more, err := d.Ended().Purge(t.Context(), time.Minute, 0)
			require.NoError(t, err)
			require.True(t, more)
		})
		require.Equal(t, 3000, s.Count("status = 2"))
		require.Positive(t, cost)
		most := 2000 // rows
		if d.IsPostgres() {
			most = 20_000 // blocks: a lock looks at its row once more
		}
		require.Less(t, cost, most)
	})
}

// TestPurgeKeepsOperated: rows stay of which an operation is pending, however many
// there are, and they keep no other from being purged.
func TestPurgeKeepsOperated(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := outboxtest.NewScene(t, d)
		const kept, gone = 1100, 1500
		s.InsertMany(kept+gone, outboxtest.Soon)
		d.Exec(t, "UPDATE {t} SET status = 2, finished_ms = 5")
		d.Exec(t, "INSERT INTO {t} (queue, message_key, message_id, op, due_ms) SELECT queue, message_key, message_id, 1, 0 FROM {t} ORDER BY id LIMIT ?", kept)
		s.Insert(outboxtest.Insert{ID: "later", State: table.StatePublished})
		d.Exec(t, "UPDATE {t} SET finished_ms = 7 WHERE message_id = 'later'")
		d.Analyze(t)
		purge := func() {
			for fromMs, more := int64(0), true; more; {
				var err error
				fromMs, more, err = d.Ended().Purge(t.Context(), time.Minute, fromMs)
				require.NoError(t, err)
			}
		}
		purge()
		require.Zero(t, s.Count("message_id = 'later'"))
		require.Equal(t, kept, s.Count("op = 1"))
		require.GreaterOrEqual(t, s.Count("status = 2"), kept)
		d.Exec(t, "UPDATE {t} SET status = 3, finished_ms = 6 WHERE op = 1")
		purge()
		require.Zero(t, s.Count("1 = 1"))
	})
}

// TestStoredRowsAreReadOnce: a chunk that is read whole costs its rows, and not a look at
// each one's identity.
func TestStoredRowsAreReadOnce(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := outboxtest.NewScene(t, d)
		s.InsertMany(3000, outboxtest.Far)
		s.Insert(outboxtest.Insert{ID: "many-1", Key: "k", Verb: table.VerbCancel})
		d.Analyze(t)
		read := func(whole bool) int {
			return costOf(t, d, func(d *outboxtest.Database) {
				page, err := d.Stored().After(t.Context(), s.Orders, d.Stored().Behind(), table.MaxDueMs, 1000, whole)
				require.NoError(t, err)
				require.Equal(t, 1000, page.All)
				if whole {
					require.Len(t, page.Rows, 999, "without the one that an operation is about")
				}
			})
		}
		require.Less(t, read(true), read(false)+200)
	})
}

// TestManyOperations: if there are more operations than are listed, each row's is
// found all the same.
func TestManyOperations(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := outboxtest.NewScene(t, d)
		s.InsertMany(1500, outboxtest.Far)
		d.Exec(t, "INSERT INTO {t} (queue, message_key, message_id, op, due_ms) SELECT queue, message_key, message_id, 1, 0 FROM {t} ORDER BY id LIMIT ?", 1400)
		d.Analyze(t)
		for range 3 { // Also while nothing is listed, and afterwards.
			page, err := d.Stored().After(t.Context(), s.Orders, d.Stored().Behind(), table.MaxDueMs, 2000, true)
			require.NoError(t, err)
			require.Equal(t, 1500, page.All)
			require.Len(t, page.Rows, 100)
		}
	})
}
