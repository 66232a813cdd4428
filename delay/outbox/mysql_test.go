package outbox_test

import (
	"context"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/testenv"
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
