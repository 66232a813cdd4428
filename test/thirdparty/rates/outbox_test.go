package rates

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
)

// States of rows, as the table has them.
const stored, published = 1, 2

// outboxed gives the fleet a database with an outbox.
func outboxed(f *fleet) {
	f.database = testenv.Postgres(f.t)
	f.keys += ", compensation: off"
}

// openDatabase opens the fleet's database, and makes the tables.
func (f *fleet) openDatabase() {
	f.t.Helper()
	var err error
	f.db, err = sqldb.Open(schema.Postgres, f.database)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = f.db.Close() }) // Its connections may have been cut.
	statements, err := schema.Up(schema.Postgres, schema.DefaultTable)
	require.NoError(f.t, err)
	for _, statement := range statements {
		_, err := f.db.ExecContext(f.t.Context(), statement)
		require.NoError(f.t, err, statement)
	}
}

// row commits the row of a message.
func (f *fleet) row(when delay.When) {
	f.t.Helper()
	tx, err := f.db.BeginTx(f.t.Context(), nil)
	require.NoError(f.t, err)
	f.sent++
	m := delay.Message{ID: fmt.Sprint("row", f.sent), Topic: f.topic}
	_, err = outbox.New(outbox.PostgreSQL).Schedule(f.t.Context(), tx, "orders", m, when)
	require.NoError(f.t, err)
	require.NoError(f.t, tx.Commit())
}

// rows counts those of that state.
func (f *fleet) rows(state int) (n int) {
	f.t.Helper()
	err := f.db.QueryRowContext(f.t.Context(), "SELECT count(*) FROM "+schema.DefaultTable+" WHERE status = $1", state).Scan(&n)
	require.NoError(f.t, err)
	return n
}

// rowTraffic has the messages of rows published, and waits until the rows say so.
func (f *fleet) rowTraffic(n int) {
	f.t.Helper()
	before := f.rows(published)
	for range n {
		f.row(delay.After(0))
	}
	f.await("rows are published", func() bool { return f.rows(published) == before+n })
}

// waitingRow commits a row that nobody takes, and waits until that is seen to take long.
func (f *fleet) waitingRow() {
	f.t.Helper()
	f.row(delay.After(0))
	_, err := f.db.ExecContext(f.t.Context(), "UPDATE "+schema.DefaultTable+" SET created_ms = created_ms - 120000") // As two minutes later.
	require.NoError(f.t, err)
	f.shows("delaybridge_outbox_oldest_age_seconds", atLeast(60))
}

// lockedRow has a message published whose row somebody else has locked, and waits until it
// is seen that the row has not been told.
func lockedRow(a *alarms) {
	a.t.Helper()
	a.pause("")
	a.row(ago(time.Hour))
	a.await("the row is stored", func() bool { return a.rows(stored) == 1 })
	tx, err := a.db.BeginTx(a.t.Context(), nil) // It ends with the test.
	require.NoError(a.t, err)
	_, err = tx.ExecContext(a.t.Context(), "SELECT id FROM "+schema.DefaultTable+" FOR UPDATE")
	require.NoError(a.t, err)
	_, err = inspect.NewAdmin(a.queue).Resume(a.t.Context(), "")
	require.NoError(a.t, err)
	a.await("it is published", func() bool { return a.done() == 1 })
	a.shows("delaybridge_outbox_overdue", exactly(1))
}
