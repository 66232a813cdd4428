package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
)

var firstRef = delay.Ref{ID: "m1", Key: "k"}

// commit schedules the first message in a transaction of its own.
func commit(t *testing.T, db *database, box *outbox.Outbox) {
	t.Helper()
	tx := db.begin(t)
	_, err := box.Schedule(t.Context(), tx, "orders", first, delay.After(time.Hour))
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
}

func TestChangesAreRows(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		box := outbox.New(db.dialect)
		commit(t, db, box)
		tx := db.begin(t)
		require.NoError(t, box.Reschedule(t.Context(), tx, "orders", firstRef, delay.At(time.UnixMilli(7))))
		require.NoError(t, box.Cancel(t.Context(), tx, "orders", firstRef))
		require.NoError(t, box.Cancel(t.Context(), tx, "orders", delay.Ref{ID: "never seen"}))
		require.NoError(t, tx.Commit())
		head := db.number(t, "SELECT id FROM delay_outbox WHERE op = 0")
		require.Equal(t, head, db.number(t, "SELECT target FROM delay_outbox WHERE op = 2 AND due_ms = 7 AND load_ms = 0"))
		require.Equal(t, head, db.number(t, "SELECT target FROM delay_outbox WHERE op = 1 AND message_id = 'm1' AND due_ms = 0"))
		require.Equal(t, int64(1), db.number(t, "SELECT count(*) FROM delay_outbox WHERE message_id = 'never seen' AND target IS NULL"))
		require.Equal(t, int64(4), db.number(t, "SELECT count(DISTINCT token) FROM delay_outbox"))
	})
}

// lockAsRelay locks the message's row, found by the index of what is pending.
func lockAsRelay(t *testing.T, db *database) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() }) // An error where the test ended it.
	var id int64
	require.NoError(t, tx.QueryRowContext(t.Context(),
		"SELECT id FROM delay_outbox WHERE status = 0 AND load_ms <= 9000000000000 ORDER BY load_ms, id LIMIT 500 FOR UPDATE SKIP LOCKED").Scan(&id))
	return tx
}

func TestNothingWaitsForTheRelay(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		box := outbox.New(db.dialect)
		commit(t, db, box)
		_, err := box.ScheduleBatch(t.Context(), db, "orders", requests(atOnce, "due"))
		require.NoError(t, err)
		relay := lockAsRelay(t, db)
		tx := db.begin(t)
		_, err = box.ScheduleBatch(within(t), tx, "orders", requests(inAnHour, "due"))
		require.ErrorIs(t, err, delay.ErrDuplicate)
		_, err = box.Schedule(within(t), tx, "orders", first, delay.After(0))
		require.ErrorIs(t, err, delay.ErrDuplicate)
		require.NoError(t, box.Cancel(within(t), tx, "orders", firstRef))
		require.NoError(t, box.Reschedule(within(t), tx, "orders", firstRef, delay.After(time.Hour)))
		row, err := box.Get(within(t), tx, "orders", firstRef)
		require.NoError(t, err)
		require.Equal(t, outbox.OpReschedule, row.Op)
		results, err := box.ScheduleBatch(within(t), tx, "orders", []delay.Request{{Message: first, When: delay.After(0)}, {Message: delay.Message{ID: "n", Topic: "t"}, When: delay.After(0)}})
		require.NoError(t, err, "it was cancelled")
		require.Equal(t, delay.Created, results[0].Status)
		require.NoError(t, tx.Commit())
		require.Equal(t, int64(3), db.number(t, "SELECT count(*) FROM delay_outbox WHERE target IS NOT NULL"), "the locked row was seen")
		require.NoError(t, relay.Rollback())
	})
}

// TestRelayFinishesBesideOpenTransactions has a business transaction that stays
// open after it changed, or only got to know, a message.
func TestRelayFinishesBesideOpenTransactions(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		box := outbox.New(db.dialect)
		commit(t, db, box)
		relay := lockAsRelay(t, db)
		tx := db.begin(t)
		require.NoError(t, box.Cancel(within(t), tx, "orders", firstRef))
		require.NoError(t, box.Reschedule(within(t), tx, "orders", firstRef, delay.After(0)))
		_, err := relay.ExecContext(within(t), "UPDATE delay_outbox SET status = 1 WHERE op = 0")
		require.NoError(t, err)
		require.NoError(t, relay.Commit())
		require.NoError(t, tx.Commit())
	})
}

func TestTwoTransactionsOneIdentity(t *testing.T) {
	t.Parallel()
	for end, want := range map[string]error{"commit": delay.ErrDuplicate, "rollback": nil} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			forEach(t, func(t *testing.T, db *database) {
				box := outbox.New(db.dialect)
				one, other := db.begin(t), db.begin(t)
				_, err := box.Schedule(t.Context(), one, "orders", first, delay.After(0))
				require.NoError(t, err)
				answer := make(chan error, 1)
				ctx := within(t)
				go func() {
					_, err := box.Schedule(ctx, other, "orders", first, delay.After(0))
					answer <- err
				}()
				select {
				case err := <-answer:
					require.Fail(t, "the second did not wait", "%v", err)
				case <-time.After(100 * time.Millisecond):
				}
				if end == "commit" {
					require.NoError(t, one.Commit())
				} else {
					require.NoError(t, one.Rollback())
				}
				require.ErrorIs(t, <-answer, want)
				require.NoError(t, other.Commit())
				require.Equal(t, int64(1), db.number(t, "SELECT count(*) FROM delay_outbox"))
			})
		})
	}
}

func TestGetTellsTheState(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		box := outbox.New(db.dialect)
		tx := db.begin(t)
		_, err := box.Get(t.Context(), tx, "orders", firstRef)
		require.ErrorIs(t, err, delay.ErrNotFound)
		require.NoError(t, tx.Commit())
		commit(t, db, box)
		get := func() outbox.Row {
			t.Helper()
			tx := db.begin(t)
			row, err := box.Get(t.Context(), tx, "orders", firstRef)
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			require.Equal(t, firstRef, row.Ref)
			return row
		}
		row := get()
		require.Equal(t, outbox.OpSchedule, row.Op)
		require.WithinDuration(t, row.CreatedAt.Add(time.Hour), row.DueAt, time.Minute)
		for status, state := range []outbox.State{
			outbox.Pending, outbox.Stored, outbox.Published, outbox.Cancelled, outbox.TooLate, outbox.Unknown, outbox.Refused, outbox.Superseded,
		} {
			db.run(t, fmt.Sprintf("UPDATE delay_outbox SET status = %d, reason = 'why', finished_ms = 99", status))
			require.Equal(t, state, get().State)
		}
		row = get()
		require.Equal(t, "why", row.Reason)
		require.Equal(t, time.UnixMilli(99), row.FinishedAt)
		db.run(t, "UPDATE delay_outbox SET status = 77")
		tx = db.begin(t)
		_, err = box.Get(t.Context(), tx, "orders", firstRef)
		require.ErrorContains(t, err, "status 77")
		require.NoError(t, tx.Rollback())

		db.run(t, "UPDATE delay_outbox SET status = 1, finished_ms = NULL")
		tx = db.begin(t)
		require.NoError(t, box.Reschedule(t.Context(), tx, "orders", firstRef, delay.At(time.UnixMilli(5000))))
		require.NoError(t, tx.Commit())
		row = get()
		require.Equal(t, outbox.OpReschedule, row.Op)
		require.Equal(t, outbox.Pending, row.State)
		require.Equal(t, time.UnixMilli(5000), row.DueAt)
		require.True(t, row.FinishedAt.IsZero())
		db.run(t, "UPDATE delay_outbox SET status = 1, finished_ms = 7 WHERE op = 2")
		require.Equal(t, outbox.Stored, get().State)
		for _, status := range []string{"1", "2"} {
			db.run(t, fmt.Sprintf("UPDATE delay_outbox SET revision = %d, due_ms = 5000, finished_ms = 8, status = %s WHERE op = 0", row.Revision, status))
			require.Equal(t, map[string]outbox.State{"1": outbox.Stored, "2": outbox.Published}[status], get().State)
			require.Equal(t, time.UnixMilli(8), get().FinishedAt)
		}
		tx = db.begin(t)
		require.NoError(t, box.Cancel(t.Context(), tx, "orders", firstRef))
		require.NoError(t, tx.Commit())
		row = get()
		require.Equal(t, outbox.OpCancel, row.Op)
		require.True(t, row.DueAt.IsZero())
	})
}

// blindTx is a transaction that cannot read.
type blindTx struct{ outbox.Tx }

func (o blindTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return o.Tx.ExecContext(ctx, query, args...)
}

func TestOnlyExec(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		box := outbox.New(db.dialect)
		inner := db.begin(t)
		tx := blindTx{inner}
		results, err := box.ScheduleBatch(t.Context(), tx, "orders", []delay.Request{
			{Message: first, When: delay.After(0)}, {Message: first, When: delay.After(0)}, {Message: delay.Message{ID: "n", Topic: "t"}, When: delay.After(0)},
		})
		require.ErrorIs(t, err, delay.ErrDuplicate)
		require.NoError(t, results[0].Err)
		require.ErrorIs(t, results[1].Err, delay.ErrDuplicate)
		require.NoError(t, results[2].Err)
		err = box.Cancel(t.Context(), tx, "orders", firstRef)
		if db.dialect == outbox.MySQL {
			require.ErrorContains(t, err, "has no QueryRowContext")
		} else {
			require.NoError(t, err)
		}
		_, err = box.Get(t.Context(), tx, "orders", firstRef)
		require.ErrorContains(t, err, "has no QueryRowContext")
		require.NoError(t, inner.Commit())
	})
}
