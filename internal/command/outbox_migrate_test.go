package command

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
)

const withoutOutbox = `queues: {orders: {sink: events}}
sinks: {events: {type: nats, url: "nats://127.0.0.1:4222"}}
`

// each is a line a migration.
func each(table, what string) (lines string) {
	for _, m := range migrations() {
		lines += fmt.Sprintf("table %s: %s %s\n", table, m.Name, what)
	}
	return lines
}

// migrations are all that there are; those of both databases have the same names.
func migrations() []schema.Migration {
	list, err := schema.Migrations(schema.Postgres, schema.DefaultTable)
	if err != nil {
		panic(err)
	}
	return list
}

func TestOutboxMigrate(t *testing.T) {
	t.Parallel()
	for driver, dsn := range map[schema.Dialect]func(testing.TB) string{schema.Postgres: testenv.Postgres, schema.MySQL: testenv.MariaDB} {
		t.Run(string(driver), func(t *testing.T) {
			t.Parallel()
			dsn := dsn(t)
			file := writeFile(t, withoutOutbox+fmt.Sprintf("outbox: {driver: %s, dsn: %q}\n", driver, dsn))
			step := func(verb string, args ...string) outcome {
				return bridge(t, "", append([]string{"outbox", "migrate", verb, "--config", file}, args...)...)
			}
			assert.Equal(t, outcome{0, each("delay_outbox", "missing"), ""}, step("status"))
			assert.Equal(t, outcome{0, each("delay_outbox", "applied"), ""}, step("up"))
			assert.Equal(t, outcome{0, "table delay_outbox is up to date\n", ""}, step("up"))
			listed := step("status", "-o", "json", "--name", "default")
			listed.stdout, _, _ = strings.Cut(listed.stdout, "\n")
			status := listed.object(t)
			assert.Equal(t, []any{"default", "delay_outbox", 1.0, "applied"}, []any{status["outbox"], status["table"], status["version"], status["state"]})
			assert.NotEmpty(t, status["applied_at"])

			db, err := sqldb.Open(driver, dsn)
			require.NoError(t, err)
			defer func() { _ = db.Close() }()
			_, err = db.ExecContext(t.Context(), "INSERT INTO delay_outbox (queue, message_id, topic, body, due_ms) VALUES ('q', 'm', 't', '', 5)")
			require.NoError(t, err)
			for _, m := range slices.Backward(migrations()[1:]) {
				assert.Equal(t, outcome{0, "table delay_outbox: " + m.Name + " taken back\n", ""}, step("down"))
			}
			down := step("down", "-o", "json")
			assert.Equal(t, exitRefused, down.code)
			code, _ := down.errorOf(t)
			assert.Equal(t, "pending", code)
			assert.Equal(t, outcome{0, "table delay_outbox: 00001_outbox.sql taken back\n", ""}, step("down", "--force"))
			assert.Equal(t, outcome{0, "table delay_outbox has nothing to take back\n", ""}, step("down"))
		})
	}
}

func TestOutboxMigrateNamed(t *testing.T) {
	t.Parallel()
	file := writeFile(t, withoutOutbox+fmt.Sprintf("outbox:\n  a: {driver: postgres, dsn: %q}\n  b: {driver: mysql, dsn: %q, table: b}\n",
		testenv.Postgres(t), testenv.MariaDB(t)))
	o := bridge(t, "", "outbox", "migrate", "up", "--config", file)
	assert.Equal(t, outcome{0, each("delay_outbox", "applied") + each("b", "applied"), ""}, o)
	o = bridge(t, "", "outbox", "migrate", "down", "--config", file, "--name", "b")
	assert.Equal(t, outcome{0, "table b: " + migrations()[schema.Version-1].Name + " taken back\n", ""}, o)
	o = bridge(t, "", "outbox", "migrate", "up", "--config", file, "--name", "c")
	assert.Equal(t, exitUsage, o.code)
	assert.Contains(t, o.stderr, `unknown outbox "c"`)
}

func TestOutboxMigrateErrors(t *testing.T) {
	t.Parallel()
	o := bridge(t, "", "outbox", "migrate", "up", "--config", writeFile(t, withoutOutbox))
	assert.Equal(t, exitUsage, o.code)
	assert.Contains(t, o.stderr, "has no section outbox")
	for driver, dsn := range map[string]string{"postgres": "postgres://u:hunter2@127.0.0.1:1/d", "mysql": "u:hunter2@tcp(127.0.0.1:1)/d"} {
		o = bridge(t, "", "outbox", "migrate", "up", "--config", writeFile(t, withoutOutbox+fmt.Sprintf("outbox: {driver: %s, dsn: %q}\n", driver, dsn)), "-o", "json")
		code, _ := o.errorOf(t)
		assert.Equal(t, "unavailable", code)
		assert.Equal(t, exitFailed, o.code)
		assert.NotContains(t, o.stderr, "hunter2")
	}
}

func TestOutboxMigratePrint(t *testing.T) {
	t.Parallel()
	o := bridge(t, "", "outbox", "migrate", "print", "--dialect", "postgres", "--table", "mine")
	assert.Equal(t, exitDone, o.code)
	assert.Contains(t, o.stdout, "CREATE TABLE mine (")
	assert.NotContains(t, o.stdout, "goose")
	assert.Contains(t, o.stdout, "CREATE INDEX CONCURRENTLY mine_due")
	assert.NotContains(t, o.stdout, "DROP TABLE mine;")
	o = bridge(t, "", "outbox", "migrate", "print", "--dialect", "mysql", "--down")
	assert.Contains(t, o.stdout, "DROP TABLE IF EXISTS delay_outbox;")
	assert.NotContains(t, o.stdout, "CREATE TABLE delay_outbox (")
	for _, args := range [][]string{{"--dialect", "oracle"}, {"--dialect", "mysql", "--table", "a-b"}, {}} {
		o = bridge(t, "", append([]string{"outbox", "migrate", "print"}, args...)...)
		assert.Equal(t, exitUsage, o.code, args)
	}
}
