package table_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
	"github.com/delaybridge/delaybridge/internal/outbox/migrate"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestSessionsAreOurs: whatever a server makes of new sessions, the bridge sees each row
// that is committed, and commits what it writes; and a check names what is odd.
func TestSessionsAreOurs(t *testing.T) {
	t.Parallel()
	dsn := testenv.StartMariaDB(t, service.MariaDBUnsafe).URL()
	owner, err := service.OpenMariaDB(dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, owner.Close()) }()
	for _, odd := range []string{"autocommit = 0", "completion_type = CHAIN", "sql_mode = 'ANSI_QUOTES,PIPES_AS_CONCAT'", "sql_select_limit = 1"} {
		_, err = owner.ExecContext(t.Context(), "SET GLOBAL "+odd)
		require.NoError(t, err)
	}
	db, err := sqldb.Open(schema.MySQL, dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	m, err := migrate.New(db, schema.MySQL, "box")
	require.NoError(t, err)
	_, err = m.Up(t.Context())
	require.NoError(t, err)

	d, err := table.Open(table.Config{Dialect: schema.MySQL, Source: sqldb.Plain(dsn), Table: "box", Connections: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, d.Close()) }()
	look := func() bool {
		found, err := d.Pending().Look(t.Context(), []string{"orders", "mails"}, time.Now().UnixMilli(), time.Minute)
		require.NoError(t, err)
		return found["orders"].Heads
	}
	require.False(t, look())
	for _, id := range []string{"one", "two"} {
		_, err = db.ExecContext(t.Context(), "INSERT INTO box (queue, message_id, topic, body, due_ms) VALUES ('orders', '"+id+"', 't', '', 5)")
		require.NoError(t, err)
	}
	require.True(t, look(), "the row is committed, and the session sees it")
	codes := map[string]int{}
	for _, f := range d.Findings(t.Context()) {
		codes[f.Code]++
	}
	require.Equal(t, 2, codes["outbox_session"], codes)
}
