package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestTableInASchema makes every call on a table where the session does not look by
// itself; it finds another one of the same name.
func TestTableInASchema(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		table := testenv.Schema(t, db.DB) + "." + schema.DefaultTable
		statements, err := schema.Up(db.dialect, table)
		require.NoError(t, err)
		for _, statement := range statements {
			db.run(t, statement)
		}
		options := []outbox.Option{outbox.WithTable(table)}
		if db.dialect == outbox.PostgreSQL {
			options = append(options, outbox.WithNotify())
		}
		box := outbox.New(db.dialect, options...)
		tx := db.begin(t)
		results, err := box.ScheduleBatch(t.Context(), tx, "orders", requests(atOnce, "a", "b"))
		written(t, results, err, "a", "b")
		results, err = box.ScheduleBatch(t.Context(), tx, "orders", requests(inAnHour, "a", "c", "b", "d"))
		written(t, results, err, "c", "d")
		ref, later := delay.Ref{ID: "c"}, time.Now().Add(48*time.Hour).Truncate(time.Millisecond)
		require.NoError(t, box.Reschedule(t.Context(), tx, "orders", ref, delay.At(later)))
		row, err := box.Get(t.Context(), tx, "orders", ref)
		require.NoError(t, err)
		require.True(t, row.DueAt.Equal(later))
		require.NoError(t, box.Cancel(t.Context(), tx, "orders", ref))
		require.NoError(t, tx.Commit())
		require.Zero(t, db.number(t, "SELECT count(*) FROM "+schema.DefaultTable))
		require.Equal(t, int64(4), db.number(t, "SELECT count(*) FROM "+table+" WHERE op = 0"))
		require.Equal(t, int64(2), db.number(t, "SELECT count(*) FROM "+table+" WHERE op > 0 AND target IS NOT NULL"))
	})
}
