package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestProducersRightsInMySQL has a user who may do no more than
// docs/operations.md says.
func TestProducersRightsInMySQL(t *testing.T) {
	t.Parallel()
	dsn := testenv.MariaDB(t)
	db := openSQL(t, "mysql", outbox.MySQL, dsn)
	db.migrate(t)
	box := outbox.New(outbox.MySQL)
	_, err := box.ScheduleBatch(t.Context(), db, "orders", requests(atOnce, "due"))
	require.NoError(t, err)
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	config.User, config.Passwd = testenv.Name(t, "user"), "secret"
	for _, host := range []string{"localhost", "%"} { // Debian's servers have an anonymous user of localhost.
		user := "'" + config.User + "'@'" + host + "'"
		db.run(t, "CREATE USER "+user+" IDENTIFIED BY '"+config.Passwd+"'")
		t.Cleanup(func() {
			_, err := db.ExecContext(context.WithoutCancel(t.Context()), "DROP USER "+user)
			assert.NoError(t, err)
		})
		db.run(t, "GRANT SELECT, INSERT ON delay_outbox TO "+user)
	}
	poor := openSQL(t, "mysql", outbox.MySQL, config.FormatDSN())
	tx := poor.begin(t)
	results, err := box.ScheduleBatch(t.Context(), tx, "orders", requests(inAnHour, "due", "new", "new"))
	written(t, results, err, "new")
	require.NoError(t, box.Cancel(t.Context(), tx, "orders", delay.Ref{ID: "new"}))
	_, err = box.Get(t.Context(), tx, "orders", delay.Ref{ID: "new"})
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
}

// countingTx counts what is read through it.
type countingTx struct {
	*sql.Tx
	reads int
}

func (c *countingTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	c.reads++
	return c.Tx.QueryRowContext(ctx, query, args...)
}

// TestLooksOnce bounds what it costs that Schedule looks before it inserts.
func TestLooksOnce(t *testing.T) {
	t.Parallel()
	db := openSQL(t, "mysql", outbox.MySQL, testenv.MariaDB(t))
	db.migrate(t)
	ids := make([]string, 100)
	for i := range ids {
		ids[i] = fmt.Sprint("m", i)
	}
	for want, ids := range map[int][]string{0: {"", "", ""}, 1: ids} {
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		counting := &countingTx{Tx: tx}
		_, err = outbox.New(outbox.MySQL).ScheduleBatch(t.Context(), counting, "orders", requests(inAnHour, ids...))
		require.NoError(t, err)
		require.NoError(t, tx.Commit())
		require.Equal(t, want, counting.reads)
	}
}
