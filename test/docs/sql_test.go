package docs_test

import (
	"database/sql"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql" // so that testenv can open the databases
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// TestStatements runs the SQL of pages on the tables of an outbox. A comment says which
// databases a statement is for.
func TestStatements(t *testing.T) {
	t.Parallel()
	databases := map[string]*sql.DB{
		"PostgreSQL": outbox(t, "postgres", testenv.Postgres(t), service.OpenPostgres),
		"MariaDB":    outbox(t, "mysql", testenv.MariaDB(t), service.OpenMariaDB),
	}
	count := 0
	for _, p := range readPages(t) {
		for _, b := range p.blocks {
			if b.language != "sql" {
				continue
			}
			for _, line := range b.lines {
				statement, of, _ := strings.Cut(line, " -- ")
				for name, db := range databases {
					if !strings.Contains(of, name) {
						continue
					}
					count++
					_, err := db.ExecContext(t.Context(), strings.TrimRight(statement, " ;"))
					assert.NoError(t, err, "%s:%d: %s", p.name, b.line, line)
				}
			}
		}
	}
	require.GreaterOrEqual(t, count, len(databases))
}

// outbox makes the tables in a database, as a bridge's operator does.
func outbox(t *testing.T, driver, dsn string, open func(string) (*sql.DB, error)) *sql.DB {
	t.Helper()
	s := shell{t: t, dir: t.TempDir()}
	s.write("bridge.yaml", fmt.Sprintf(`
outbox: {driver: %s, dsn: %q}
queues: {orders: {sink: events}}
sinks: {events: {type: nats, url: "nats://127.0.0.1:1"}}
`, driver, dsn))
	up := exec.CommandContext(t.Context(), binary, "outbox", "migrate", "up", "--config", filepath.Join(s.dir, "bridge.yaml"))
	out, err := up.CombinedOutput()
	require.NoError(t, err, "%s", out)
	db, err := open(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}
