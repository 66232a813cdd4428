package pgxtx_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // of the servers of tests
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/outbox/pgxtx"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestModes has the ways in which pgx sends a statement; those behind poolers
// send values as text.
func TestModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			config, err := pgx.ParseConfig(testenv.Postgres(t))
			require.NoError(t, err)
			config.DefaultQueryExecMode = mode
			conn, err := pgx.ConnectConfig(t.Context(), config)
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close(t.Context())) }()
			statements, err := schema.Up(schema.Postgres, schema.DefaultTable)
			require.NoError(t, err)
			for _, statement := range statements {
				_, err := conn.Exec(t.Context(), statement)
				require.NoError(t, err)
			}
			require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error { use(t, pgxtx.Wrap(tx)); return nil }))
			tx, err := conn.Begin(t.Context())
			require.NoError(t, err)
			_, err = pgxtx.Wrap(tx).ExecContext(t.Context(), "nonsense")
			require.Error(t, err)
			require.NoError(t, tx.Rollback(t.Context()))
		})
	}
}

func use(t *testing.T, tx *pgxtx.Tx) {
	t.Helper()
	box := outbox.New(outbox.PostgreSQL)
	m := delay.Message{ID: `it's "\`, Topic: "t", Headers: map[string]string{"a": `'"\`}, Body: []byte{0, 1, 255}}
	request := delay.Request{Message: m, When: delay.After(time.Hour)}
	results, err := box.ScheduleBatch(t.Context(), tx, "orders", []delay.Request{request, request, {Message: delay.Message{Topic: "t"}, When: delay.After(0)}})
	require.ErrorIs(t, err, delay.ErrDuplicate)
	require.NoError(t, results[2].Err)
	require.NoError(t, box.Reschedule(t.Context(), tx, "orders", results[0].Ref, delay.After(time.Hour)))
	require.NoError(t, box.Cancel(t.Context(), tx, "orders", results[0].Ref))
	row, err := box.Get(t.Context(), tx, "orders", results[0].Ref)
	require.NoError(t, err)
	require.Equal(t, outbox.OpCancel, row.Op)
	_, err = box.Get(t.Context(), tx, "orders", delay.Ref{ID: "none"})
	require.ErrorIs(t, err, delay.ErrNotFound)

	var header string
	var body []byte
	require.NoError(t, tx.ScanRow(t.Context(), "SELECT headers->>'a', body FROM delay_outbox WHERE op = 0 AND message_id = $1", []any{m.ID}, &header, &body))
	require.Equal(t, m.Headers["a"], header)
	require.Equal(t, m.Body, body)
	require.ErrorIs(t, tx.ScanRow(t.Context(), "SELECT 1 WHERE false", nil, new(int)), sql.ErrNoRows)
	result, err := tx.ExecContext(t.Context(), "DELETE FROM delay_outbox WHERE op = 0")
	require.NoError(t, err)
	n, err := result.RowsAffected()
	require.NoError(t, err)
	require.Equal(t, int64(2), n)
	_, err = result.LastInsertId()
	require.Error(t, err)
}
