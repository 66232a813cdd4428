package tracing_test

import (
	"database/sql"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestOutbox writes the context of the call's span into the row, if it has none.
func TestOutbox(t *testing.T) {
	t.Parallel()
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		testOutbox(t, outbox.PostgreSQL, database(t, "pgx", outbox.PostgreSQL, testenv.Postgres(t)))
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		testOutbox(t, outbox.MySQL, database(t, "mysql", outbox.MySQL, testenv.MariaDB(t)))
	})
}

func testOutbox(t *testing.T, dialect outbox.Dialect, db *sql.DB) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	box := outbox.New(dialect, outbox.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))))
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = tx.Rollback() }() // An error where it was committed.
	own := delay.Message{ID: "own", Topic: "t", Headers: map[string]string{"traceparent": "mine"}}
	_, err = box.ScheduleBatch(t.Context(), tx, "orders", []delay.Request{
		{Message: own, When: delay.After(0)}, {Message: delay.Message{ID: "a", Topic: "t"}, When: delay.After(0)},
	})
	require.NoError(t, err)
	_, err = box.Schedule(t.Context(), tx, "orders", own, delay.After(0))
	require.ErrorIs(t, err, delay.ErrDuplicate)
	require.NoError(t, tx.Commit())
	spans := recorder.Ended()
	require.Len(t, spans, 2)
	assert.Contains(t, spans[1].Status().Description, "duplicate")
	header := func(where string) string {
		var text string
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT headers FROM delay_outbox WHERE message_id = '"+where+"'").Scan(&text))
		headers := map[string]string{}
		require.NoError(t, json.Unmarshal([]byte(text), &headers))
		return headers["traceparent"]
	}
	assert.Equal(t, "mine", header("own"))
	assert.Contains(t, header("a"), spans[0].SpanContext().SpanID().String())
}
