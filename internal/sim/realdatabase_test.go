package sim

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
)

// recordedSQL is a statement that the database of a story has run, and what it has yielded.
type recordedSQL struct {
	session string
	at      time.Time
	text    string
	args    []driver.NamedValue
	yields  result
	err     error
}

// recordingSQL, unless nil, is told of each statement.
var recordingSQL func(recordedSQL)

// TestRealDatabase gives the statements of some stories to a real MariaDB, in the order in which they were
// run, and compares what they yield. Where the real one has a statement wait for a lock that is none in the
// story, or skip it, the comparison of that story ends: MariaDB locks entries of indexes, too.
func TestRealDatabase(t *testing.T) {
	const enough = 500
	compared := 0
	for seed, stories := *first, 0; compared <= enough && stories < realSeeds; seed++ {
		if newPlan(seed, nil).box.isThere {
			stories++
			compared += againstMariaDB(t, seed)
		}
	}
	require.Greater(t, compared, enough, "hardly a statement was compared")
}

func againstMariaDB(t *testing.T, seed uint64) (compared int) {
	t.Helper()
	var story []recordedSQL
	recordingSQL = func(r recordedSQL) { story = append(story, r) }
	defer func() { recordingSQL = nil }()
	o := simulate(t, seed, nil, nil)
	require.Empty(t, o.Failed)

	db, err := sqldb.Open(schema.MySQL, testenv.MariaDB(t))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	statements, err := schema.Up(schema.MySQL, schema.DefaultTable)
	require.NoError(t, err)
	for _, statement := range statements {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	sessions := map[string]*sql.Conn{}
	defer func() {
		for _, name := range sortedKeys(sessions) {
			require.NoError(t, sessions[name].Close())
		}
	}()
	for i, r := range story {
		if strings.HasPrefix(r.text, "SELECT VERSION()") || strings.Contains(r.text, "information_schema") || strings.Contains(r.text, "WHERE 1 = 0") {
			continue
		}
		if r.err != nil {
			continue // A lock, or a deadlock: it has changed nothing.
		}
		conn := sessions[r.session]
		if conn == nil {
			conn, err = db.Conn(t.Context())
			require.NoError(t, err)
			sessions[r.session] = conn
			for _, set := range []string{"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", "SET innodb_lock_wait_timeout = 1"} {
				_, err = conn.ExecContext(t.Context(), set)
				require.NoError(t, err)
			}
		}
		_, err = conn.ExecContext(t.Context(), fmt.Sprintf("SET timestamp = %d.%06d", r.at.Unix(), r.at.Nanosecond()/1000))
		require.NoError(t, err)
		got, err := yields(t.Context(), conn, r)
		var of *mysql.MySQLError
		if errors.As(err, &of) && (of.Number == 1205 || of.Number == 1213) {
			t.Logf("seed %d: %d of %d statements, and then one waits: %.200s", seed, i, len(story), r.text)
			return compared
		}
		require.NoError(t, err, "seed %d, statement %d: %s", seed, i, r.text)
		want := r.told()
		if strings.Contains(r.text, "SKIP LOCKED") && len(got) < len(want) {
			t.Logf("seed %d: %d of %d statements, and then one skips what is locked: %.200s", seed, i, len(story), r.text)
			return compared
		}
		if want != got {
			t.Fatalf("seed %d, statement %d of %s: %s\n%v\nyields %s\nbut %s in the story", seed, i, r.session, r.text, r.args, got, want)
		}
		compared++
	}
	t.Logf("seed %d: %d statements", seed, len(story))
	return compared
}

// yields runs a statement on a real server.
func yields(ctx context.Context, conn *sql.Conn, r recordedSQL) (string, error) {
	args := make([]any, len(r.args))
	for i, a := range r.args {
		args[i] = a.Value
	}
	if !strings.HasPrefix(r.text, "SELECT") && !strings.HasPrefix(r.text, "(SELECT") {
		done, err := conn.ExecContext(ctx, r.text, args...)
		if err != nil {
			return "", err
		}
		n, err := done.RowsAffected()
		return fmt.Sprint(n), err
	}
	rows, err := conn.QueryContext(ctx, r.text, args...)
	if err != nil {
		return "", err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return "", err
	}
	var all []string
	for rows.Next() {
		values, places := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			places[i] = &values[i]
		}
		if err := rows.Scan(places...); err != nil {
			return "", err
		}
		all = append(all, toldRow(values))
	}
	return toldRows(r.text, all), rows.Err()
}

// told is what it has yielded, as it can be compared.
func (r recordedSQL) told() string {
	if !strings.HasPrefix(r.text, "SELECT") && !strings.HasPrefix(r.text, "(SELECT") {
		return fmt.Sprint(r.yields.changed)
	}
	var all []string
	for _, row := range r.yields.rows {
		values := make([]any, len(row))
		for i := range row {
			values[i] = row[i]
		}
		all = append(all, toldRow(values))
	}
	return toldRows(r.text, all)
}

// toldRows are rows; in which order they come is the server's affair where the statement does not say.
func toldRows(text string, rows []string) string {
	if !strings.Contains(text, "ORDER BY") || strings.Contains(text, "UNION ALL") {
		slices.Sort(rows)
	}
	return strings.Join(rows, "; ")
}

func toldRow(values []any) string {
	parts := make([]string, len(values))
	for i, v := range values {
		if b, ok := v.([]byte); ok {
			v = string(b)
		}
		parts[i] = fmt.Sprintf("%v", v)
	}
	return strings.Join(parts, " | ")
}
