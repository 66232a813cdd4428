package command

import (
	"database/sql"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
)

// TestOutboxInASchema has the table where sessions do not look by themselves, from
// its making to its end.
func TestOutboxInASchema(t *testing.T) {
	t.Parallel()
	for driver, dsn := range map[schema.Dialect]func(testing.TB) string{schema.Postgres: testenv.Postgres, schema.MySQL: testenv.MariaDB} {
		t.Run(string(driver), func(t *testing.T) {
			t.Parallel()
			url, topic, dsn := testenv.NATS(t), testenv.Name(t, "t"), dsn(t)
			db, err := sqldb.Open(driver, dsn)
			require.NoError(t, err)
			t.Cleanup(func() { _ = db.Close() })
			table := testenv.Schema(t, db) + "." + schema.DefaultTable
			f := setupWith(t, 2, url, freeAddr(t))
			text, err := os.ReadFile(f.file)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(f.file, fmt.Appendf(text, "outbox: {driver: %s, dsn: %q, table: %s}\n", driver, dsn, table), 0o600))
			command := func(args ...string) outcome {
				return bridge(t, "", append(append([]string{"outbox"}, args...), "--config", f.file)...)
			}
			unfit := command("list")
			assert.Equal(t, exitFailed, unfit.code)
			assert.Contains(t, unfit.stderr, "table "+table+" is missing")
			assert.Equal(t, outcome{0, each(table, "applied"), ""}, command("migrate", "up"))
			execSQL(t, db, "INSERT INTO "+table+" (queue, message_id, status, finished_ms, due_ms) VALUES ('orders', 'of old', 2, 1, 1)")

			got := subscribe(t, url, topic)
			box := outbox.New(driver, outbox.WithTable(table))
			for id, when := range map[string]delay.When{"now": delay.After(0), "soon": delay.After(time.Minute), "later": delay.After(48 * time.Hour)} {
				_, err = box.Schedule(t.Context(), atOnce{db}, "orders", delay.Message{ID: id, Topic: topic, Body: []byte(id)}, when)
				require.NoError(t, err)
			}
			_, err = box.Schedule(t.Context(), atOnce{db}, "orders", delay.Message{ID: "wrong", Topic: "a b"}, delay.After(90*24*time.Hour))
			require.NoError(t, err)
			p := start(t, os.Environ(), "run", "--config", f.file)
			msg, err := got.NextMsg(commandTimeout)
			require.NoError(t, err)
			assert.Equal(t, "now", string(msg.Data))
			eventually := func(id string, want outbox.State) {
				t.Helper()
				require.Eventually(t, func() bool {
					row, err := box.Get(t.Context(), db, "orders", delay.Ref{ID: id})
					return err == nil && row.State == want
				}, commandTimeout, 10*time.Millisecond)
			}
			eventually("now", outbox.Published)
			eventually("soon", outbox.Stored)
			require.NoError(t, box.Cancel(t.Context(), atOnce{db}, "orders", delay.Ref{ID: "soon"}))
			eventually("soon", outbox.Cancelled)
			require.Eventually(t, func() bool {
				return command("list", "--state", "published", "-o", "json", "--limit", "1").object(t)["id"] == "now"
			}, commandTimeout, 10*time.Millisecond, "what ended long ago is purged")
			eventually("wrong", outbox.Refused)
			assert.Equal(t, "later", command("list", "--state", "pending", "-o", "json").object(t)["id"])
			p.signal(syscall.SIGTERM)
			assert.Equal(t, exitDone, p.wait(), p.output())
			assert.NotContains(t, p.output(), `"level":"ERROR"`)
			for range schema.Version {
				assert.Zero(t, command("migrate", "down", "--force").code)
			}
			assert.Equal(t, outcome{0, each(table, "missing"), ""}, command("migrate", "status"))
		})
	}
}

// atOnce passes for a transaction; each of its statements is committed at once.
type atOnce struct{ *sql.DB }

func (atOnce) Commit() error { return nil }
