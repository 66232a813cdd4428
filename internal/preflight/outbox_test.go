package preflight_test

import (
	"database/sql"
	"fmt"
	"net/url"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox/migrate"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
)

// outboxOnly has a database, and no Redis and no broker.
const outboxOnly = "redis: {url: \"redis://127.0.0.1:1\"}\nqueues: {orders: {sink: s}}\nsinks: {s: {type: nats, url: \"nats://127.0.0.1:1\"}}\n" +
	"admin: {listen: \"\"}\noutbox: {driver: %s, dsn: %q}\n"

func lookAtOutbox(t *testing.T, dialect schema.Dialect, dsn string) []check.Finding {
	t.Helper()
	findings := look(t, "outbox", nil, outboxOnly, dialect, dsn)
	assert.NotContains(t, fmt.Sprint(findings), "hidden")
	return findings
}

// database is one of a kind, with a user of few rights.
type database struct {
	dialect schema.Dialect
	dsn     func(t *testing.T) string
	// as is the DSN with another login; unreached one that leads nowhere.
	as        func(t *testing.T, dsn, user, password string) string
	unreached string
	// user makes a user; spoil is what makes commits unsafe.
	user, reindex, spoil string
}

var databases = map[string]database{
	"postgres": {
		dialect: schema.Postgres, dsn: func(t *testing.T) string { return testenv.StartPostgres(t, "").URL() },
		as: func(t *testing.T, dsn, user, password string) string {
			t.Helper()
			u, err := url.Parse(dsn)
			require.NoError(t, err)
			u.User = url.UserPassword(user, password)
			return u.String()
		},
		unreached: "postgres://u:hidden@127.0.0.1:1/db",
		user:      "CREATE USER bridge PASSWORD 'p'", reindex: "DROP INDEX delay_outbox_due", spoil: "ALTER DATABASE postgres SET synchronous_commit = off",
	},
	"mariadb": {
		dialect: schema.MySQL, dsn: func(t *testing.T) string { return testenv.StartMariaDB(t, "").URL() },
		as: func(t *testing.T, dsn, user, password string) string {
			t.Helper()
			config, err := mysql.ParseDSN(dsn)
			require.NoError(t, err)
			config.User, config.Passwd = user, password
			return config.FormatDSN()
		},
		unreached: "u:hidden@tcp(127.0.0.1:1)/db",
		user:      "CREATE USER bridge@'%' IDENTIFIED BY 'p'", reindex: "ALTER TABLE delay_outbox DROP KEY delay_outbox_due",
		spoil: "SET GLOBAL innodb_flush_log_at_trx_commit = 2",
	},
}

func TestOutbox(t *testing.T) {
	t.Parallel()
	for name, d := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := d.dsn(t)
			db, err := sqldb.Open(d.dialect, dsn)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			run := func(statement string) {
				t.Helper()
				_, err := db.ExecContext(t.Context(), statement)
				require.NoError(t, err, statement)
			}
			expect := func(dsn string, expected ...string) []check.Finding {
				t.Helper()
				findings := lookAtOutbox(t, d.dialect, dsn)
				require.Equal(t, append([]string{}, expected...), codes(findings), "%+v", findings)
				return findings
			}
			expect(d.unreached, "error outbox_unreachable")
			expect(d.as(t, dsn, "nobody", "hidden"), "error outbox_login")
			f := expect(dsn, "error outbox_schema")[0]
			assert.Contains(t, f.What, "not applied: 00001")
			migrateUp(t, db, d.dialect)
			expect(dsn)

			run(d.user)
			bridge := d.as(t, dsn, "bridge", "p")
			grantee := map[schema.Dialect]string{schema.Postgres: "bridge", schema.MySQL: "bridge@'%'"}[d.dialect]
			run("GRANT SELECT ON delay_outbox TO " + grantee)
			run("GRANT SELECT ON delay_outbox_lives TO " + grantee)
			denied := expect(bridge, "error outbox_denied")
			require.Len(t, denied, 2)
			assert.Contains(t, denied[0].Remedy, "GRANT UPDATE, DELETE ON delay_outbox TO")
			assert.Contains(t, denied[1].Remedy, "GRANT INSERT, UPDATE ON delay_outbox_lives TO")
			run("GRANT UPDATE, DELETE ON delay_outbox TO " + grantee)
			run("GRANT INSERT, UPDATE ON delay_outbox_lives TO " + grantee)
			expect(bridge)

			run(d.reindex)
			findings := lookAtOutbox(t, d.dialect, dsn)
			require.Len(t, findings, 1)
			assert.Equal(t, "outbox_index", findings[0].Code)
			assert.Contains(t, findings[0].What, "delay_outbox_due")
			run(d.spoil)
			require1(t, lookAtOutbox(t, d.dialect, dsn), "outbox_commit")
		})
	}
}

func migrateUp(t *testing.T, db *sql.DB, dialect schema.Dialect) {
	t.Helper()
	m, err := migrate.New(db, dialect, schema.DefaultTable)
	require.NoError(t, err)
	_, err = m.Up(t.Context())
	require.NoError(t, err)
}

// TestOutboxStandby names a server that takes no writes.
func TestOutboxStandby(t *testing.T) {
	t.Parallel()
	primary := testenv.StartPostgres(t, "")
	db, err := sqldb.Open(schema.Postgres, primary.URL())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	migrateUp(t, db, schema.Postgres)
	standby := testenv.StartPostgresStandby(t, primary, "")
	require.Eventually(t, func() bool {
		findings := lookAtOutbox(t, schema.Postgres, standby.URL())
		return len(findings) == 1 && findings[0].Code == "outbox_read_only"
	}, timeLimit, pause, "once it has the tables")
}
