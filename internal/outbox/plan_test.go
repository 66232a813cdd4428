package outbox

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/testenv"
)

// TestPlansOfAFreshTable: PostgreSQL looks up each identity by the index also
// where its statistics are from when there was nothing to do, as in the first
// minutes of a burst.
func TestPlansOfAFreshTable(t *testing.T) {
	t.Parallel()
	d := openTest(t, schema.Postgres, testenv.Postgres(t))
	s := newScene(t, d)
	_, err := d.query("").add("ALTER TABLE {t} SET (autovacuum_enabled = false)").exec(t.Context(), d.db)
	require.NoError(t, err)
	s.insert(insert{id: "first", state: stateStored, dueMs: 5})
	d.analyze(t)
	const rows = 5000
	for op, status := range []int{0, 0, 2} {
		q := d.query("").add("INSERT INTO {t} (queue, message_id, op, status, topic, due_ms) SELECT ?, 'id-' || n, ?, ?, 't', 5 FROM generate_series(1, ?::int) n",
			s.orders, op, status, rows)
		_, err := q.exec(t.Context(), d.db)
		require.NoError(t, err)
	}
	var list []identity
	for i := range 500 {
		list = append(list, identity{s.orders, "", fmt.Sprint("id-", i*7)})
	}
	tx, err := d.begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }()
	for name, q := range map[string]*query{
		"operations": d.of(list, columns, hasOperation, " FOR UPDATE SKIP LOCKED"),
		"live":       d.of(list, columns, "op = 0 AND status IN (0, 1)", ""),
		"ended":      d.of(list, columns, "op = 0 AND status > 1", ""),
		"history":    d.of(list, "queue, message_key, message_id, MAX(id)", "op > 0 OR status > 1", " GROUP BY queue, message_key, message_id"),
		"targets":    d.of(list, "target, status", "op = 1 AND status IN (3, 5)", " ORDER BY id DESC"),
		"heads":      d.headsQuery(work{queue: s.orders, operations: true, untilMs: time.Now().UnixMilli(), most: 500}),
	} {
		plan := q.plan(t, tx)
		require.NotContains(t, plan, "Seq Scan", name)
		require.Contains(t, plan, "message_id = ", name)
		for line := range strings.Lines(plan) {
			require.False(t, strings.Contains(line, "Join Filter") || strings.Contains(line, "Sort"), "%s: %s", name, plan)
		}
	}
}
