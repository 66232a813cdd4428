package outbox_test

import (
	"database/sql"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// mergesAt reports whether the database merges at that level.
func (d *database) mergesAt(t *testing.T, level sql.IsolationLevel) bool {
	t.Helper()
	if d.dialect == outbox.PostgreSQL {
		return level == sql.LevelReadCommitted
	}
	return d.number(t, "SELECT 1 /*M!110402 - @@innodb_snapshot_isolation */") == 1
}

// TestMerge has a message that is rescheduled while its reschedule is pending.
func TestMerge(t *testing.T) {
	t.Parallel()
	atEach(t, snapshotLevels, func(t *testing.T, db *database, level sql.IsolationLevel) {
		box := outbox.New(db.dialect, outbox.WithMerge())
		move := func(tx outbox.Tx, when delay.When) {
			t.Helper()
			require.NoError(t, box.Reschedule(within(t), tx, "orders", firstRef, when))
		}
		moves := func() (n int64) { return db.number(t, "SELECT count(*) FROM delay_outbox WHERE op = 2") }
		last := func() int64 {
			return db.number(t, "SELECT CASE WHEN revision > 0 THEN revision ELSE due_ms END FROM delay_outbox ORDER BY id DESC LIMIT 1")
		}
		at := time.Now().Add(3 * time.Hour).Truncate(time.Millisecond)
		for name, c := range map[string]struct {
			first   delay.When
			between string
			rows    int64
		}{
			"another one":         {inAnHour, "", 1},
			"due soon":            {delay.After(50 * time.Second), "", 2},
			"the message is soon": {inAnHour, "UPDATE delay_outbox SET due_ms = due_ms - 3590000 WHERE op = 0", 2},
			"done":                {inAnHour, "UPDATE delay_outbox SET status = 1, finished_ms = 1 WHERE op = 2", 2},
			"noted":               {inAnHour, "UPDATE delay_outbox SET revision = 0 WHERE op = 2", 2},
			"cancelled":           {inAnHour, "INSERT INTO delay_outbox (queue, message_key, message_id, op, due_ms) VALUES ('orders', 'k', 'm1', 1, 0)", 2},
			"of another message":  {inAnHour, "UPDATE delay_outbox SET target = 0 WHERE op = 2", 2},
		} {
			db.run(t, "DELETE FROM delay_outbox")
			commit(t, db, box)
			move(db, c.first)
			if c.between != "" {
				db.run(t, c.between)
			}
			tx := db.beginAt(t, level)
			move(tx, delay.At(at))
			require.NoError(t, tx.Commit())
			want := c.rows
			if !db.mergesAt(t, level) {
				want = 2
			}
			require.Equal(t, want, moves(), name)
			require.Equal(t, at.UnixMilli(), last(), name)
			row, err := box.Get(t.Context(), db, "orders", firstRef)
			require.NoError(t, err)
			require.True(t, row.DueAt.Equal(at), name)
		}
	})
}

// TestMergeWaitsForNobody has a reschedule that somebody else has locked, and one that has
// changed since the transaction's snapshot.
func TestMergeWaitsForNobody(t *testing.T) {
	t.Parallel()
	atEach(t, snapshotLevels, func(t *testing.T, db *database, level sql.IsolationLevel) {
		box := outbox.New(db.dialect, outbox.WithMerge())
		commit(t, db, box)
		reschedule := func(tx outbox.Tx) error { return box.Reschedule(within(t), tx, "orders", firstRef, inAnHour) }
		require.NoError(t, reschedule(db))
		relay, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = relay.Rollback() }) // Nothing, if it was committed.
		byID := fmt.Sprintf(" WHERE id = %d", db.number(t, "SELECT id FROM delay_outbox WHERE op = 2"))
		run(t, relay, "SELECT id FROM delay_outbox"+byID+" FOR UPDATE")
		one, other := db.beginAt(t, level), db.beginAt(t, level)
		for _, tx := range []transaction{one, other} {
			run(t, tx, "SELECT count(*) FROM delay_outbox")
		}
		require.NoError(t, reschedule(one))
		require.NoError(t, one.Commit())
		run(t, relay, "UPDATE delay_outbox SET status = 1, revision = 0, finished_ms = 1"+byID)
		require.NoError(t, relay.Commit())
		require.NoError(t, reschedule(other))
		require.NoError(t, other.Commit())
		require.Equal(t, int64(1), db.number(t, "SELECT count(*) FROM delay_outbox WHERE op = 2 AND status = 1"))
		require.Positive(t, db.number(t, "SELECT count(*) FROM delay_outbox WHERE op = 2 AND status = 0"))
	})
}

// TestMergeBatchWaitsForNobody: a batch that is a large part of the table looks at no other rows,
// which a relay may have locked.
func TestMergeBatchWaitsForNobody(t *testing.T) {
	t.Parallel()
	atEach(t, snapshotLevels, func(t *testing.T, db *database, level sql.IsolationLevel) {
		box := outbox.New(db.dialect, outbox.WithMerge())
		ids := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
		_, err := box.ScheduleBatch(t.Context(), db, "orders", requests(inAnHour, ids...))
		require.NoError(t, err)
		reschedule := func(tx outbox.Tx) error {
			changes := make([]outbox.Change, len(ids))
			for i, id := range ids {
				changes[i] = outbox.Change{Ref: delay.Ref{ID: id}, When: inAnHour}
			}
			_, err := box.RescheduleBatch(within(t), tx, "orders", changes)
			return err
		}
		require.NoError(t, reschedule(db))
		relay := db.beginAt(t, sql.LevelReadCommitted)
		run(t, relay, "SELECT id FROM delay_outbox WHERE id = (SELECT MIN(id) FROM delay_outbox) FOR UPDATE")
		producer := db.beginAt(t, level)
		require.NoError(t, reschedule(producer))
		require.NoError(t, producer.Commit())
		require.NoError(t, relay.Commit())
		if db.mergesAt(t, level) {
			require.Equal(t, int64(len(ids)), db.number(t, "SELECT count(*) FROM delay_outbox WHERE op = 2"))
		}
	})
}

// TestMergeBatch has a batch of which some are merged, some not, and one is there twice.
func TestMergeBatch(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		box := outbox.New(db.dialect, outbox.WithMerge())
		_, err := box.ScheduleBatch(t.Context(), db, "orders", requests(inAnHour, "a", "b", "c"))
		require.NoError(t, err)
		at := time.Now().Add(4 * time.Hour)
		change := func(id string, more time.Duration) outbox.Change {
			return outbox.Change{Ref: delay.Ref{ID: id}, When: delay.At(at.Add(more))}
		}
		_, err = box.RescheduleBatch(t.Context(), db, "orders", []outbox.Change{change("b", 0), change("x", 0)})
		require.NoError(t, err)
		tx := db.beginAt(t, sql.LevelReadCommitted)
		results, err := box.RescheduleBatch(within(t), tx, "orders", []outbox.Change{change("c", 1e9), change("b", 2e9), change("a", 3e9), change("b", 4e9), change("x", 5e9)})
		require.NoError(t, err)
		require.Len(t, results, 5)
		require.NoError(t, tx.Commit())
		require.Equal(t, int64(1), db.number(t, "SELECT count(*) FROM delay_outbox WHERE op = 2 AND message_id = 'a'"))
		if db.mergesAt(t, sql.LevelReadCommitted) {
			require.Equal(t, int64(1), db.number(t, "SELECT count(*) FROM delay_outbox WHERE op = 2 AND message_id = 'b'"))
		}
		require.Equal(t, int64(2), db.number(t, "SELECT count(*) FROM delay_outbox WHERE op = 2 AND message_id = 'x'"), "there is no message")
		newest := db.number(t, "SELECT revision FROM delay_outbox WHERE op = 2 AND message_id = 'b' ORDER BY id DESC LIMIT 1")
		require.Equal(t, at.Add(4*time.Second).UnixMilli(), newest-newest%1000+at.UnixMilli()%1000)
	})
}

// TestMergeSaves tells what 500 sessions cost whose timeout is pushed on again and again, before
// a relay sees to it. SESSIONS=500 is the whole of it.
func TestMergeSaves(t *testing.T) {
	t.Parallel()
	sessions, times := 20, 20
	if n, err := strconv.Atoi(os.Getenv("SESSIONS")); err == nil {
		sessions, times = n, 200
	}
	for name, open := range map[string]func(*testing.T) *database{
		"postgres": func(t *testing.T) *database { return openSQL(t, "pgx", outbox.PostgreSQL, testenv.Postgres(t)) },
		"mariadb":  func(t *testing.T) *database { return openSQL(t, "mysql", outbox.MySQL, testenv.MariaDB(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			db := open(t)
			db.migrate(t)
			for _, options := range [][]outbox.Option{nil, {outbox.WithMerge()}} {
				db.run(t, "DELETE FROM delay_outbox")
				box := outbox.New(db.dialect, options...)
				var ids []string
				for i := range sessions {
					ids = append(ids, fmt.Sprintf("session-%d", i))
				}
				_, err := box.ScheduleBatch(t.Context(), db, "orders", requests(inAnHour, ids...))
				require.NoError(t, err)
				began := time.Now()
				for range times {
					for _, id := range ids {
						tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
						require.NoError(t, err)
						require.NoError(t, box.Reschedule(t.Context(), tx, "orders", delay.Ref{ID: id}, inAnHour))
						require.NoError(t, tx.Commit())
					}
				}
				rows := db.number(t, "SELECT count(*) FROM delay_outbox WHERE op = 2")
				t.Logf("merge %v: %d reschedules, %d rows, %v each", options != nil, sessions*times, rows, time.Since(began)/time.Duration(sessions*times))
				if options != nil && db.mergesAt(t, sql.LevelReadCommitted) {
					require.Equal(t, int64(sessions), rows)
				}
			}
		})
	}
}
