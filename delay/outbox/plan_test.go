package outbox_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
)

// explain returns the plan of a query as one text.
func (d *database) explain(t *testing.T, query string) string {
	t.Helper()
	rows, err := d.QueryContext(t.Context(), "EXPLAIN "+query)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	columns, err := rows.Columns()
	require.NoError(t, err)
	var plan strings.Builder
	for rows.Next() {
		values, places := make([]*string, len(columns)), make([]any, len(columns))
		for i := range values {
			places[i] = &values[i]
		}
		require.NoError(t, rows.Scan(places...))
		for i, value := range values {
			if value != nil {
				_, _ = fmt.Fprintf(&plan, "%s=%s ", columns[i], *value)
			}
		}
		plan.WriteString("\n")
	}
	require.NoError(t, rows.Err())
	return plan.String()
}

func TestQueriesUseTheirIndex(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		requests := make([]delay.Request, 1000)
		for i := range requests {
			requests[i] = delay.Request{Message: delay.Message{Topic: "t"}, When: delay.After(0)}
		}
		tx := db.begin(t)
		_, err := outbox.New(db.dialect).ScheduleBatch(t.Context(), tx, "orders", requests)
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		for i := range 5 { // 32,000 rows, a quarter of them pending
			db.run(t, fmt.Sprintf(`INSERT INTO delay_outbox (queue, message_id, status, due_ms, body, finished_ms)
				SELECT queue, concat(message_id, '-%d'), CASE WHEN id %% 4 = 0 THEN 0 ELSE 2 END, due_ms, '', 5 FROM delay_outbox`, i))
		}
		if db.dialect == outbox.PostgreSQL {
			db.run(t, "ANALYZE delay_outbox")
		} else {
			db.run(t, "ANALYZE TABLE delay_outbox")
		}
		const identity = "queue = 'orders' AND message_key = '' AND message_id = 'x'"
		for query, index := range map[string]string{
			"SELECT * FROM delay_outbox WHERE queue = 'orders' AND status = 0 AND load_ms <= 9000000000000 ORDER BY load_ms, id LIMIT 500 FOR UPDATE SKIP LOCKED": "delay_outbox_due",
			"SELECT id FROM delay_outbox WHERE " + identity + " AND op = 0 AND status IN (0, 1) ORDER BY id DESC LIMIT 1":                                         "delay_outbox_",
			"SELECT id FROM delay_outbox WHERE " + identity + " AND (op > 0 OR status > 1) ORDER BY id DESC LIMIT 1":                                              "delay_outbox_",
			"SELECT id FROM delay_outbox WHERE finished_ms < 3":                                                                                                   "delay_outbox_finished",
		} {
			plan := db.explain(t, query)
			require.Contains(t, plan, index, query)
			require.NotContains(t, plan, "Seq Scan", query)
			if index != "delay_outbox_" { // MariaDB may sort the few rows of an identity.
				require.NotContains(t, plan, "Sort", query)
				require.NotContains(t, plan, "filesort", query)
			}
			require.NotContains(t, plan, "type=ALL", query)
		}
	})
}
