package delaytest_test

import (
	"database/sql"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/delaytest"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/outbox/pgxtx"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// forEach runs a test with each driver, in a new database with the tables.
func forEach(t *testing.T, run func(t *testing.T, db *sql.DB, box *outbox.Outbox)) {
	for driver, open := range map[string]struct {
		dialect outbox.Dialect
		dsn     func(testing.TB) string
	}{
		"pgx":      {outbox.PostgreSQL, testenv.Postgres},
		"postgres": {outbox.PostgreSQL, testenv.Postgres},
		"mysql":    {outbox.MySQL, testenv.MariaDB},
	} {
		t.Run(driver, func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open(driver, open.dsn(t))
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, db.Close()) })
			statements, err := schema.Up(open.dialect, schema.DefaultTable)
			require.NoError(t, err)
			for _, statement := range statements {
				_, err := db.ExecContext(t.Context(), statement)
				require.NoError(t, err)
			}
			run(t, db, outbox.New(open.dialect))
		})
	}
}

// TestLoadOutbox takes what transactions have written to the queue, each row once, as
// a bridge would.
func TestLoadOutbox(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *sql.DB, box *outbox.Outbox) {
		q := delaytest.New(t, "orders", delaytest.WithBroker(delaytest.NATS))
		begin := func() *sql.Tx {
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			return tx
		}
		full := delay.Message{
			ID: "it's", Key: "k", Topic: "order.timeout", Body: []byte{0, 1, 255}, Headers: map[string]string{"a": `"'\`},
			Tags: []string{"x"}, Late: delay.Late{After: time.Hour, Then: delay.LateDrop},
		}
		tx := begin()
		ref, err := box.Schedule(t.Context(), tx, "orders", full, delay.After(30*time.Minute))
		require.NoError(t, err)
		moved, err := box.Schedule(t.Context(), tx, "orders", delay.Message{Topic: "mail"}, delay.After(time.Hour))
		require.NoError(t, err)
		_, err = box.Schedule(t.Context(), tx, "others", delay.Message{Topic: "mail"}, delay.After(time.Hour))
		require.NoError(t, err)
		q.LoadOutbox(db, "")
		q.RequireNothing()
		q.LoadOutbox(tx, "")
		got := q.RequireScheduled("order.timeout", delay.After(30*time.Minute))
		assert.Equal(t, full, got.Message)
		q.RequireScheduled("mail", delay.After(time.Hour))
		require.NoError(t, tx.Commit())

		tx = begin()
		require.NoError(t, box.Cancel(t.Context(), tx, "orders", ref))
		require.NoError(t, box.Cancel(t.Context(), tx, "orders", delay.Ref{ID: "never seen"}))
		require.NoError(t, box.Reschedule(t.Context(), tx, "orders", moved, delay.After(2*time.Hour)))
		require.NoError(t, tx.Commit())
		q.LoadOutbox(db, "delay_outbox")
		q.RequireNotScheduled("order.timeout")
		q.RequireScheduled("mail", delay.After(2*time.Hour))
		q.Advance(2 * time.Hour)
		require.Equal(t, moved, q.RequirePublished("mail").Ref())
		q.LoadOutbox(db, "")
		q.RequireNotScheduled()

		tx = begin()
		at := delay.At(time.Now().Add(48 * time.Hour).Truncate(time.Millisecond))
		again, err := box.ScheduleBatch(t.Context(), tx, "orders", []delay.Request{
			{Message: delay.Message{ID: "twice", Topic: "mail"}, When: delay.After(time.Hour)},
			{Message: delay.Message{ID: "twice", Topic: "letter"}, When: at, Conflict: delay.Replace},
		})
		require.NoError(t, err)
		require.Equal(t, delay.Replaced, again[1].Status)
		require.NoError(t, tx.Commit())
		q.LoadOutbox(db, "")
		q.RequireNotScheduled("mail")
		q.RequireScheduled("letter", at)

		tx = begin()
		defer func() { assert.NoError(t, tx.Rollback()) }()
		_, err = box.Schedule(t.Context(), tx, "orders", delay.Message{ID: "order-42", Key: "k", Topic: "mail"}, delay.After(0))
		require.NoError(t, err)
		failed := &recorder{TB: t}
		var ended sync.WaitGroup
		ended.Go(func() {
			q := delaytest.New(failed, "orders")
			_, err := q.Schedule(t.Context(), delay.Message{ID: "order-42", Key: "k", Topic: "mail"}, delay.After(time.Hour))
			assert.NoError(t, err)
			q.LoadOutbox(tx, "")
		})
		ended.Wait()
		assert.Contains(t, failed.text, "message order-42 (key k): a bridge would refuse it: delay: duplicate message")
	})
}

// TestLoadOutboxOfPgx reads a transaction of pgx itself.
func TestLoadOutboxOfPgx(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), testenv.Postgres(t))
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close(t.Context())) }()
	statements, err := schema.Up(outbox.PostgreSQL, schema.DefaultTable)
	require.NoError(t, err)
	for _, statement := range statements {
		_, err := conn.Exec(t.Context(), statement)
		require.NoError(t, err)
	}
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { assert.NoError(t, tx.Rollback(t.Context())) }()
	box, q := outbox.New(outbox.PostgreSQL), delaytest.New(t, "orders")
	full := delay.Message{ID: "a", Key: "k", Topic: "t", Body: []byte{0, 255}, Headers: map[string]string{"h": "'"}, Tags: []string{"x"}}
	for _, m := range []delay.Message{full, {ID: "b", Topic: "t"}} {
		_, err := box.Schedule(t.Context(), pgxtx.Wrap(tx), "orders", m, delay.After(time.Hour))
		require.NoError(t, err)
	}
	require.NoError(t, box.Cancel(t.Context(), pgxtx.Wrap(tx), "orders", delay.Ref{ID: "b"}))
	q.LoadOutbox(pgxtx.Wrap(tx), "")
	require.Len(t, q.Scheduled(), 1)
	stored := q.RequireScheduled("t", delay.After(time.Hour))
	assert.Equal(t, full.Body, stored.Body)
	assert.Equal(t, full.Headers, stored.Headers)
	assert.Equal(t, full.Tags, stored.Tags)
}

// recorder is a test of which somebody else sees the end.
type recorder struct {
	testing.TB

	text string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}
