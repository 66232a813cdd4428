package command

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
)

// outboxTable is a configuration with a database, and its tables.
func outboxTable(t *testing.T, driver schema.Dialect, dsn string) (file string, db *sql.DB) {
	t.Helper()
	file = writeFile(t, withoutOutbox+fmt.Sprintf("prefix: %s\nredis: {url: %q}\noutbox: {driver: %s, dsn: %q}\n",
		testenv.Name(t, "p"), testenv.Redis(t), driver, dsn))
	db, err := sqldb.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	require.Zero(t, bridge(t, "", "outbox", "migrate", "up", "--config", file).code)
	return file, db
}

func execSQL(t *testing.T, db *sql.DB, text string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), text)
	require.NoError(t, err)
}

func TestOutboxListAndShow(t *testing.T) {
	t.Parallel()
	for driver, dsn := range map[schema.Dialect]func(testing.TB) string{schema.Postgres: testenv.Postgres, schema.MySQL: testenv.MariaDB} {
		t.Run(string(driver), func(t *testing.T) {
			t.Parallel()
			file, db := outboxTable(t, driver, dsn(t))
			run := func(args ...string) outcome {
				return bridge(t, "", append(append([]string{"outbox"}, args...), "--config", file)...)
			}
			assert.Equal(t, outcome{0, "no such rows\n", ""}, run("list"))
			for i := range 3 {
				execSQL(t, db, fmt.Sprintf("INSERT INTO delay_outbox (queue, message_id, topic, body, due_ms) VALUES ('orders', 'm%d', 'top', 'secret', 1790000000000)", i))
			}
			execSQL(t, db, "INSERT INTO delay_outbox (queue, message_id, op, due_ms, status, reason) VALUES ('orders', 'm1', 1, 0, 5, 'who knows')")

			all := run("list")
			assert.Zero(t, all.code)
			for _, part := range []string{"ROW", "m0", "2026-09-21T14:13:20.000Z", "schedule", "pending", "cancel", "unknown", "who knows", "top"} {
				assert.Contains(t, all.stdout, part)
			}
			assert.NotContains(t, all.stdout, "secret")
			first := run("list", "--limit", "1", "-o", "json")
			row := first.object(t)
			assert.Equal(t, []any{"default", 1.0, "m0", "", "orders", "top", "schedule", "pending", 6.0},
				[]any{row["outbox"], row["row"], row["id"], row["key"], row["queue"], row["topic"], row["verb"], row["state"], row["bytes"]})
			assert.Contains(t, first.stderr, "--cursor 1 shows the next")
			assert.Equal(t, "m1", run("list", "--limit", "1", "--cursor", "1", "-o", "json").object(t)["id"])
			assert.Equal(t, "m1", run("list", "--state", "unknown", "-o", "json").object(t)["id"])
			assert.Equal(t, outcome{0, "no such rows\n", ""}, run("list", "--queue", "other"))
			assert.Equal(t, exitUsage, run("list", "--state", "lost").code)
			assert.Equal(t, exitUsage, run("list", "--limit", "0").code)

			shown := run("show", "--queue", "orders", "--id", "m1")
			assert.Regexp(t, `(?s)schedule +pending.*cancel +unknown`, shown.stdout)
			none := run("show", "--queue", "orders", "--id", "m1", "--key", "k", "-o", "json")
			code, _ := none.errorOf(t)
			assert.Equal(t, []any{exitRefused, "not_found"}, []any{none.code, code})
		})
	}
}

func TestOutboxUnfitAndAway(t *testing.T) {
	t.Parallel()
	file := writeFile(t, withoutOutbox+fmt.Sprintf("outbox: {driver: postgres, dsn: %q}\n", testenv.Postgres(t)))
	o := bridge(t, "", "outbox", "list", "--config", file, "-o", "json")
	code, _ := o.errorOf(t)
	assert.Equal(t, []any{exitFailed, "unfit"}, []any{o.code, code})
	assert.Contains(t, o.stderr, "bridge outbox migrate up")
	file = writeFile(t, withoutOutbox+"outbox: {driver: mysql, dsn: \"u:hunter2@tcp(127.0.0.1:1)/d\"}\n")
	o = bridge(t, "", "outbox", "show", "--config", file, "--queue", "q", "--id", "a", "-o", "json")
	code, _ = o.errorOf(t)
	assert.Equal(t, []any{exitFailed, "unavailable"}, []any{o.code, code})
	assert.NotContains(t, o.stderr, "hunter2")
}

func TestOutboxAudit(t *testing.T) {
	t.Parallel()
	for driver, dsn := range map[schema.Dialect]func(testing.TB) string{schema.Postgres: testenv.Postgres, schema.MySQL: testenv.MariaDB} {
		t.Run(string(driver), func(t *testing.T) {
			t.Parallel()
			file, db := outboxTable(t, driver, dsn(t))
			cfg, err := loadConfig(&program{}, file)
			require.NoError(t, err)
			options, err := redis.ParseURL(testenv.Redis(t))
			require.NoError(t, err)
			rdb := redis.NewClient(options)
			defer func() { assert.NoError(t, rdb.Close()) }()
			queue := store.New(rdb, cfg.Prefix, "orders")
			run := func(args ...string) outcome {
				return bridge(t, "", append([]string{"outbox", "audit", "--config", file, "-o", "json"}, args...)...)
			}
			unmade := run()
			code, _ := unmade.errorOf(t)
			assert.Equal(t, []any{exitFailed, "no_layout"}, []any{unmade.code, code})
			_, err = queue.Layouts().Ensure(t.Context(), store.Layout{Shards: 2, Sink: message.NATS, MaxMessage: message.DefaultMaxSize})
			require.NoError(t, err)

			for id, due := range map[string]time.Duration{"lost": time.Hour, "ended": time.Hour, "overdue": -time.Hour} {
				execSQL(t, db, fmt.Sprintf("INSERT INTO delay_outbox (queue, message_id, topic, body, due_ms, status) VALUES ('orders', '%s', 'top', 'b', %d, 1)",
					id, time.Now().Add(due).UnixMilli()))
			}
			there := func(id string) bool {
				_, ok, err := inspect.Get(context.WithoutCancel(t.Context()), queue, id, "")
				require.NoError(t, err)
				return ok
			}
			counts := run("--all", "--dry-run").object(t)
			assert.Equal(t, []any{true, 3.0, 3.0}, []any{counts["dry_run"], counts["looked"], counts["put_back"]})
			assert.False(t, there("lost"))
			counts = run().object(t)
			assert.Equal(t, []any{false, 1.0, 1.0}, []any{counts["dry_run"], counts["looked"], counts["put_back"]})
			assert.True(t, there("overdue"))
			assert.False(t, there("lost"))
			counts = run("--all", "--queue", "orders").object(t)
			assert.Equal(t, []any{false, 3.0, 2.0, 1.0}, []any{counts["dry_run"], counts["looked"], counts["put_back"], counts["there"]})
			assert.True(t, there("lost"))

			execSQL(t, db, "UPDATE delay_outbox SET status = 2, finished_ms = 1 WHERE message_id = 'ended'")
			o := bridge(t, "", "outbox", "audit", "--all", "--config", file)
			assert.Equal(t, "outbox default, queue orders: 2 rows; 0 put back, 2 there, 0 settled, 0 left to the relay, 0 blocked by other messages; 1 removed\n", o.stdout)
			assert.False(t, there("ended"))
			assert.True(t, there("lost"))
			assert.Equal(t, exitUsage, run("--queue", "none").code)

			changes, err := inspect.NewAdmin(queue).AuditLog(t.Context(), "", 10)
			require.NoError(t, err)
			require.Len(t, changes, 3, "all but the dry run")
			adoptRows(t, db, file, run)
			assert.Equal(t, []string{"outbox audit", "default", "put_back 0, removed 1, settled 0"}, []string{changes[0].Action, changes[0].What, changes[0].Answer})
		})
	}
}

// adoptRows: rows that belong to another Redis are left alone until an operator says otherwise,
// which nobody can while its bridges are there.
func adoptRows(t *testing.T, db *sql.DB, file string, audit func(...string) outcome) {
	t.Helper()
	adopt := func() outcome { return bridge(t, "", "outbox", "adopt", "--config", file, "--queue", "orders") }
	o := adopt()
	assert.Equal(t, outcome{0, "orders: its rows belong to this Redis\n", ""}, o)
	execSQL(t, db, "UPDATE delay_outbox_lives SET life = 'theirs'")
	o = audit("--all")
	code, _ := o.errorOf(t)
	assert.Equal(t, []any{exitRefused, "other_redis"}, []any{o.code, code})
	o = adopt()
	assert.Equal(t, exitRefused, o.code)
	assert.Contains(t, o.stderr, "stop the bridges that have the other Redis")
	execSQL(t, db, "UPDATE delay_outbox_lives SET seen_ms = 1")
	o = bridge(t, "", "check", "--config", file)
	assert.Contains(t, o.stdout, "outbox_other_redis")
	o = adopt()
	assert.Equal(t, outcome{0, "orders: its rows belong to this Redis from now on\n", ""}, o)
	assert.Equal(t, 0, audit("--all").code)
}
