package command

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestOutboxRedrive has refused messages, of some of which there is something later.
func TestOutboxRedrive(t *testing.T) {
	t.Parallel()
	for driver, dsn := range map[schema.Dialect]func(testing.TB) string{schema.Postgres: testenv.Postgres, schema.MySQL: testenv.MariaDB} {
		t.Run(string(driver), func(t *testing.T) {
			t.Parallel()
			file, db := outboxTable(t, driver, dsn(t))
			run := func(args ...string) outcome {
				return bridge(t, "", append(append([]string{"outbox", "redrive"}, args...), "--config", file, "--queue", "orders")...)
			}
			insert := func(id string, op, status int, reason string) {
				t.Helper()
				finished := "5"
				if status < 2 {
					finished = "NULL"
				}
				execSQL(t, db, fmt.Sprintf("INSERT INTO delay_outbox (queue, message_id, topic, op, due_ms, status, reason, finished_ms) VALUES ('orders', '%s', 't', %d, 7, %d, '%s', %s)",
					id, op, status, reason, finished))
			}
			state := func(id string) (open int) {
				t.Helper()
				require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM delay_outbox WHERE message_id = '"+id+"' AND status = 0 AND reason = '' AND finished_ms IS NULL").Scan(&open))
				return open
			}
			insert("one", 0, 6, "bad")
			insert("exact", 0, 6, "bad topic")
			insert("twice", 0, 6, "bad")
			insert("twice", 0, 6, "bad")
			insert("place", 3, 6, "another message of that id was scheduled first")
			insert("cancelled", 0, 6, "bad")
			insert("cancelled", 1, 3, "the message was refused")
			insert("lives", 0, 0, "")
			insert("lives", 3, 6, "bad")
			insert("operation", 1, 6, "bad")
			insert("published", 0, 6, "bad")
			insert("published", 0, 2, "")
			for _, wrong := range [][]string{{}, {"one", "--all"}, {"one", "--reason", "x"}, {"--all", "--key", "k"}} {
				assert.Equal(t, exitUsage, run(wrong...).code, wrong)
			}
			for _, id := range []string{"cancelled", "published", "lives", "operation", "unknown"} {
				none := run(id)
				assert.Equal(t, exitRefused, none.code, id)
				assert.Equal(t, map[bool]int{true: 1}[id == "lives"], state(id), id)
			}
			assert.Equal(t, exitRefused, run("one", "--key", "k").code)

			dry := run("--all", "--dry-run", "-o", "json").object(t)
			assert.Equal(t, []any{"default", "orders", 4.0, 4.0, 0.0, true},
				[]any{dry["outbox"], dry["queue"], dry["redriven"], dry["overtaken"], dry["busy"], dry["dry_run"]})
			assert.Zero(t, state("one"))
			assert.Equal(t, outcome{0, "1 redriven, 0 overtaken, 0 busy\n", ""}, run("one"))
			assert.Equal(t, 1, state("one"))
			assert.Equal(t, outcome{0, "0 redriven, 0 overtaken, 0 busy\n", ""}, run("--all", "--reason", "bad top"))
			assert.Equal(t, outcome{0, "1 redriven, 0 overtaken, 0 busy\n", ""}, run("--all", "--reason", "bad topic"))
			assert.Equal(t, outcome{0, "2 redriven, 4 overtaken, 0 busy\n", ""}, run("--all"))
			for id, want := range map[string]int{"one": 1, "exact": 1, "twice": 1, "place": 1, "cancelled": 0, "lives": 1, "operation": 0, "published": 0} {
				assert.Equal(t, want, state(id), id)
			}
		})
	}
}
