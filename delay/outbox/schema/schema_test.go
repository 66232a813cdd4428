package schema_test

import (
	"database/sql"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

const longName = "a_name_of_forty_one_letters_as_long_as_is"

func TestUp(t *testing.T) {
	t.Parallel()
	for dialect, open := range map[schema.Dialect]func(testing.TB) *sql.DB{
		schema.Postgres: func(t testing.TB) *sql.DB { return openDB(t, "pgx", testenv.Postgres(t)) },
		schema.MySQL:    func(t testing.TB) *sql.DB { return openDB(t, "mysql", testenv.MariaDB(t)) },
	} {
		t.Run(string(dialect), func(t *testing.T) {
			t.Parallel()
			db := open(t)
			other := testenv.Schema(t, db)
			for _, table := range []string{schema.DefaultTable, longName, other + "." + longName} {
				statements, err := schema.Up(dialect, table)
				require.NoError(t, err)
				for _, statement := range statements {
					_, err := db.ExecContext(t.Context(), statement)
					require.NoError(t, err, statement)
				}
				insertPlain(t, db, table)
			}
		})
	}
}

// insertPlain writes and reads a row as a producer without any library would.
func insertPlain(t *testing.T, db *sql.DB, table string) {
	t.Helper()
	insert := "INSERT INTO " + table + " (queue, message_id, topic, body, due_ms) VALUES ('orders', 'm1', 'topic', 'hello', 1700000000123)"
	_, err := db.ExecContext(t.Context(), insert)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), insert)
	require.Error(t, err, "a second row of the identity")
	var id, op, status, loadMs, createdMs int64
	var token string
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT id, op, status, load_ms, created_ms, token FROM "+table).
		Scan(&id, &op, &status, &loadMs, &createdMs, &token))
	require.Equal(t, []int64{1, 0, 0, 1700000000123}, []int64{id, op, status, loadMs})
	require.Greater(t, createdMs, int64(1700000000000))
	require.Regexp(t, "^~[0-9a-f]{15}$", token)
	_, err = db.ExecContext(t.Context(), "INSERT INTO "+table+" (queue, message_id, op, due_ms) VALUES ('orders', 'm1', 1, 5), ('orders', 'm1', 2, 5)")
	require.NoError(t, err)
	var tokens int
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(DISTINCT token) FROM "+table+" WHERE load_ms IN (0, 1700000000123)").Scan(&tokens))
	require.Equal(t, 3, tokens)
}

func TestNames(t *testing.T) {
	t.Parallel()
	require.NoError(t, schema.CheckTable(longName))
	require.NoError(t, schema.CheckTable(longName+"."+longName))
	for _, table := range []string{"", "1a", "Delay", "a-b", "a b", ".b", "a.", "a.1b", "1a.b", "a.b.c", "A.b", "a. b", `a"`, longName + "s", longName + "s.b"} {
		_, err := schema.Up(schema.Postgres, table)
		require.Error(t, err, table)
	}
	_, err := schema.Up("oracle", schema.DefaultTable)
	require.Error(t, err)
	migrations, err := schema.Migrations(schema.MySQL, "my_delay_outbox")
	require.NoError(t, err)
	require.Len(t, migrations, schema.Version)
	require.Equal(t, int64(schema.Version), migrations[len(migrations)-1].Version)
	require.Contains(t, migrations[0].SQL, "KEY my_delay_outbox_pending (")
	require.NotContains(t, strings.ReplaceAll(migrations[0].SQL, "my_delay_outbox", ""), "delay_outbox")
	migrations, err = schema.Migrations(schema.Postgres, "our.box")
	require.NoError(t, err)
	require.Contains(t, migrations[1].SQL, "\nDROP INDEX CONCURRENTLY IF EXISTS our.box_due;")
	require.Contains(t, migrations[1].SQL, "\nCREATE INDEX CONCURRENTLY box_due ON our.box (")
}

func openDB(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}
