package main_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestPostgresStandby promotes a standby: it has what was committed while it
// followed, not what was later, and takes writes, also after a restart.
func TestPostgresStandby(t *testing.T) {
	t.Parallel()
	primary := testenv.StartPostgres(t, "")
	conn := postgresConn(t, primary.URL())
	_, err := conn.Exec(t.Context(), "CREATE TABLE t (v text)")
	require.NoError(t, err)
	standby := testenv.StartPostgresStandby(t, primary, "")
	_, err = conn.Exec(t.Context(), "INSERT INTO t VALUES ('before')")
	require.NoError(t, err)
	reader := postgresConn(t, standby.URL())
	require.Eventually(t, func() bool {
		var count int
		require.NoError(t, reader.QueryRow(t.Context(), "SELECT count(*) FROM t").Scan(&count))
		return count == 1
	}, time.Minute, 10*time.Millisecond, "it follows")
	_, err = reader.Exec(t.Context(), "INSERT INTO t VALUES ('too soon')")
	require.Error(t, err, "it only reads")

	standby.Detach()
	_, err = conn.Exec(t.Context(), "INSERT INTO t VALUES ('after')")
	require.NoError(t, err)
	primary.Kill()
	standby.Promote()
	writer := postgresConn(t, standby.URL())
	_, err = writer.Exec(t.Context(), "INSERT INTO t VALUES ('new')")
	require.NoError(t, err)
	standby.Kill()
	standby.Start()
	var all string
	require.NoError(t, postgresConn(t, standby.URL()).QueryRow(t.Context(), "SELECT string_agg(v, ' ' ORDER BY v) FROM t").Scan(&all))
	require.Equal(t, "before new", all)
}
