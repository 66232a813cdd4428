package outbox_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
)

// beginAt begins a transaction of a level in which no call waits long for a lock.
func (d *database) beginAt(t *testing.T, level sql.IsolationLevel) transaction {
	t.Helper()
	if d.dialect == outbox.PostgreSQL {
		tx := d.begin(t)
		run(t, tx, "SET TRANSACTION ISOLATION LEVEL "+strings.ToUpper(level.String()))
		run(t, tx, "SET LOCAL lock_timeout = '2s'")
		return tx
	}
	tx, err := d.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() }) // An error where the test ended it.
	run(t, tx, "SET SESSION innodb_lock_wait_timeout = 2")
	return tx
}

// readsPresent says whether a producer may lock a row to see whether it is live.
func (d *database) readsPresent(t *testing.T) bool {
	t.Helper()
	return d.dialect == outbox.PostgreSQL || d.number(t, "SELECT 0 /*!80022 + 1 */ /*M!100600 + 1 */ /*M!110402 - @@innodb_snapshot_isolation */") == 1
}

func run(t *testing.T, tx outbox.Tx, statement string) {
	t.Helper()
	_, err := tx.ExecContext(t.Context(), statement)
	require.NoError(t, err, statement)
}

// atEach runs a test on each driver and at each of these levels.
func atEach(t *testing.T, levels []sql.IsolationLevel, test func(t *testing.T, db *database, level sql.IsolationLevel)) {
	for _, level := range levels {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			forEach(t, func(t *testing.T, db *database) { test(t, db, level) })
		})
	}
}

var snapshotLevels = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead}

var (
	inAnHour = delay.After(time.Hour)
	atOnce   = delay.After(0)
)

func requests(when delay.When, ids ...string) []delay.Request {
	list := make([]delay.Request, len(ids))
	for i, id := range ids {
		list[i] = delay.Request{Message: delay.Message{ID: id, Topic: "t"}, When: when}
	}
	return list
}

// written requires that exactly these messages of a batch were written, and that
// all others are duplicates.
func written(t *testing.T, results []delay.Result, err error, ids ...string) {
	t.Helper()
	var got []string
	for _, result := range results {
		if result.Err == nil {
			require.Equal(t, delay.Created, result.Status)
			got = append(got, result.Ref.ID)
			continue
		}
		require.ErrorIs(t, result.Err, delay.ErrDuplicate)
	}
	require.Equal(t, ids, got)
	if len(ids) == len(results) {
		require.NoError(t, err)
	} else {
		require.ErrorIs(t, err, delay.ErrDuplicate)
	}
}

// TestDuplicateHoldsNobodyUp has transactions that stay open after a duplicate,
// and others that schedule its neighbours in the index.
func TestDuplicateHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	atEach(t, snapshotLevels, func(t *testing.T, db *database, level sql.IsolationLevel) {
		box := outbox.New(db.dialect)
		schedule := func(tx outbox.Tx, ids ...string) error {
			_, err := box.ScheduleBatch(t.Context(), tx, "orders", requests(inAnHour, ids...))
			return err
		}
		require.NoError(t, schedule(db, "m2", "m5", "m8"))
		_, err := box.ScheduleBatch(t.Context(), db, "orders", requests(atOnce, "n2", "n5", "n8"))
		require.NoError(t, err)
		for name, duplicate := range map[string]func(tx outbox.Tx) error{
			"one":   func(tx outbox.Tx) error { return schedule(tx, "m5") },
			"due":   func(tx outbox.Tx) error { return schedule(tx, "n5") },
			"mixed": func(tx outbox.Tx) error { return schedule(tx, "m3", "n5", "m5", "n3") },
			"twins": func(tx outbox.Tx) error { return schedule(tx, "m9", "m9") },
			"own":   func(tx outbox.Tx) error { return errors.Join(schedule(tx, "m7"), schedule(tx, "m7")) },
		} {
			if name != "one" && name != "twins" && name != "own" && !db.readsPresent(t) {
				continue
			}
			holder, other := db.beginAt(t, level), db.beginAt(t, level)
			require.ErrorIs(t, duplicate(holder), delay.ErrDuplicate, name)
			for _, id := range []string{"m4", "m6", "m71", "m81", "m90", "m10", "n4", "n6"} {
				require.NoError(t, schedule(other, id), "%s, then %s", name, id)
			}
			results, err := box.ScheduleBatch(t.Context(), other, "orders", requests(atOnce, "m41", "m5", "m61", "n5", "n51"))
			written(t, results, err, "m41", "m61", "n51")
			require.NoError(t, other.Rollback())
			require.NoError(t, holder.Rollback())
		}
	})
}

// TestDuplicatesDoNotDeadlock has two transactions that each meet a duplicate and
// then schedule its neighbour.
func TestDuplicatesDoNotDeadlock(t *testing.T) {
	t.Parallel()
	atEach(t, snapshotLevels, func(t *testing.T, db *database, level sql.IsolationLevel) {
		box := outbox.New(db.dialect)
		_, err := box.ScheduleBatch(t.Context(), db, "orders", requests(inAnHour, "m2", "m5", "m8"))
		require.NoError(t, err)
		neighbours := map[string]transaction{"m4": db.beginAt(t, level), "m6": db.beginAt(t, level)}
		for _, tx := range neighbours {
			results, err := box.ScheduleBatch(t.Context(), tx, "orders", requests(inAnHour, "m5", "m8"))
			written(t, results, err)
		}
		answers := make(chan error, len(neighbours))
		for id, tx := range neighbours {
			go func() {
				_, err := box.Schedule(t.Context(), tx, "orders", requests(inAnHour, id)[0].Message, delay.After(0))
				if err == nil {
					err = tx.Commit()
				}
				answers <- err
			}()
		}
		for range neighbours {
			require.NoError(t, <-answers)
		}
	})
}

// TestStaleSnapshot has transactions that still see messages which ended since.
func TestStaleSnapshot(t *testing.T) {
	t.Parallel()
	atEach(t, snapshotLevels, func(t *testing.T, db *database, level sql.IsolationLevel) {
		box := outbox.New(db.dialect)
		_, err := box.ScheduleBatch(t.Context(), db, "orders", requests(atOnce, "ended", "deleted", "live", "one"))
		require.NoError(t, err)
		tx := db.beginAt(t, level)
		run(t, tx, "SELECT count(*) FROM delay_outbox")
		db.run(t, "UPDATE delay_outbox SET status = 2 WHERE message_id IN ('ended', 'one')")
		db.run(t, "DELETE FROM delay_outbox WHERE message_id = 'deleted'")

		results, err := box.ScheduleBatch(within(t), tx, "orders", requests(inAnHour, "ended", "deleted", "live", "new"))
		written(t, results, err, "ended", "deleted", "new")
		_, err = box.Schedule(within(t), tx, "orders", requests(inAnHour, "one")[0].Message, delay.After(0))
		require.NoError(t, err)
		require.NoError(t, box.Cancel(within(t), tx, "orders", delay.Ref{ID: "one"}))
		require.NoError(t, tx.Commit())
		require.Equal(t, int64(5), db.number(t, "SELECT count(*) FROM delay_outbox WHERE op = 0 AND status = 0"))
		require.Equal(t, db.number(t, "SELECT id FROM delay_outbox WHERE message_id = 'one' AND op = 0 AND status = 0"),
			db.number(t, "SELECT target FROM delay_outbox WHERE op = 1"), "the new message is cancelled")
	})
}

// TestCancelledSinceTheSnapshot has a message that was cancelled before it was due.
func TestCancelledSinceTheSnapshot(t *testing.T) {
	t.Parallel()
	atEach(t, snapshotLevels, func(t *testing.T, db *database, level sql.IsolationLevel) {
		box := outbox.New(db.dialect)
		commit(t, db, box)
		tx := db.beginAt(t, level)
		run(t, tx, "SELECT count(*) FROM delay_outbox")
		db.run(t, "UPDATE delay_outbox SET status = 3")
		_, err := box.Schedule(within(t), tx, "orders", first, delay.After(0))
		if db.dialect == outbox.MySQL && level == sql.LevelRepeatableRead {
			require.ErrorIs(t, err, delay.ErrDuplicate, "as the transaction sees it")
		} else {
			require.NoError(t, err)
		}
		require.NoError(t, tx.Commit())
		_, err = box.Schedule(within(t), db, "orders", delay.Message{ID: "m1", Key: "k", Topic: "t"}, delay.After(0))
		if db.dialect == outbox.MySQL && level == sql.LevelRepeatableRead {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, delay.ErrDuplicate)
		}
	})
}

// TestDuplicateKeepsNoRowFromTheRelay has a transaction that stays open after a
// duplicate of a message which the bridge should soon take.
func TestDuplicateKeepsNoRowFromTheRelay(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		box := outbox.New(db.dialect)
		commit(t, db, box)
		tx := db.begin(t)
		_, err := box.Schedule(within(t), tx, "orders", first, delay.After(0))
		require.ErrorIs(t, err, delay.ErrDuplicate)
		require.NoError(t, lockAsRelay(t, db).Rollback())
		require.NoError(t, tx.Commit())
	})
}

// sqlState is what a database's error says by way of its driver's own type.
func sqlState(err error) string {
	var fromPgx *pgconn.PgError
	var fromPq *pq.Error
	var fromMySQL *mysql.MySQLError
	switch {
	case errors.As(err, &fromPgx):
		return fromPgx.Code
	case errors.As(err, &fromPq):
		return string(fromPq.Code)
	case errors.As(err, &fromMySQL):
		return string(fromMySQL.SQLState[:])
	}
	return ""
}

// TestDuplicateAfterTheSnapshot has a message that was committed after what the
// transaction can see.
func TestDuplicateAfterTheSnapshot(t *testing.T) {
	t.Parallel()
	atEach(t, []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable}, func(t *testing.T, db *database, level sql.IsolationLevel) {
		if db.dialect == outbox.MySQL && level == sql.LevelSerializable {
			t.Skip("has no snapshot: its reads lock")
		}
		box := outbox.New(db.dialect)
		tx := db.beginAt(t, level)
		run(t, tx, "SELECT count(*) FROM delay_outbox")
		commit(t, db, box)
		_, err := box.Schedule(within(t), tx, "orders", first, delay.After(0))
		if db.dialect == outbox.MySQL {
			require.ErrorIs(t, err, delay.ErrDuplicate)
			_, err = box.Schedule(within(t), tx, "orders", requests(inAnHour, "next")[0].Message, delay.After(0))
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			return
		}
		require.Equal(t, "40001", sqlState(err), "%v", err)
		require.NotErrorIs(t, err, delay.ErrDuplicate, "the transaction cannot go on")
		_, err = box.Schedule(within(t), tx, "orders", requests(inAnHour, "next")[0].Message, delay.After(0))
		require.Equal(t, "25P02", sqlState(err), "%v", err)
		require.NoError(t, tx.Rollback())

		again := db.beginAt(t, level)
		_, err = box.Schedule(within(t), again, "orders", first, delay.After(0))
		require.ErrorIs(t, err, delay.ErrDuplicate)
		require.NoError(t, again.Commit())
	})
}
