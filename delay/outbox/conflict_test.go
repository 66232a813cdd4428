package outbox_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
)

// standing counts the messages that live and those that will take the place of one.
func (d *database) standing(t *testing.T) [2]int64 {
	t.Helper()
	return [2]int64{
		d.number(t, "SELECT count(*) FROM delay_outbox WHERE op = 0 AND status IN (0, 1)"),
		d.number(t, "SELECT count(*) FROM delay_outbox WHERE op = 3 AND status = 0"),
	}
}

// TestConflict has an identity that is taken, and each policy of the box and of the message.
func TestConflict(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		for _, c := range []struct {
			box, message delay.Conflict
			status       delay.Status
			err          error
		}{
			{0, 0, "", delay.ErrDuplicate},
			{delay.Reject, 0, "", delay.ErrDuplicate},
			{delay.Keep, 0, delay.Existing, nil},
			{delay.Replace, 0, delay.Replaced, nil},
			{delay.Replace, delay.Reject, "", delay.ErrDuplicate},
			{0, delay.Keep, delay.Existing, nil},
			{0, delay.Replace, delay.Replaced, nil},
			{0, 9, "", delay.ErrInvalid},
		} {
			db.run(t, "DELETE FROM delay_outbox")
			commit(t, db, outbox.New(db.dialect))
			box := outbox.New(db.dialect, outbox.WithConflict(c.box))
			tx := db.begin(t)
			results, err := box.ScheduleBatch(within(t), tx, "orders", []delay.Request{
				{Message: first, When: delay.At(time.UnixMilli(77)), Conflict: c.message}, {Message: delay.Message{ID: "new", Topic: "t"}, When: delay.After(0)},
			})
			require.ErrorIs(t, err, c.err)
			require.ErrorIs(t, results[0].Err, c.err)
			require.Equal(t, c.status, results[0].Status)
			require.Equal(t, delay.Created, results[1].Status)
			require.NoError(t, tx.Commit())
			want := [2]int64{2, 0}
			if c.status == delay.Replaced {
				want[1] = 1
				require.Equal(t, int64(1), db.number(t, "SELECT count(*) FROM delay_outbox WHERE op = 3 AND target IS NULL AND NOT tried AND due_ms = 77"))
				row, err := box.Get(t.Context(), db, "orders", firstRef)
				require.NoError(t, err)
				require.Equal(t, outbox.OpSchedule, row.Op)
				require.Equal(t, outbox.Pending, row.State)
				require.Equal(t, time.UnixMilli(77), row.DueAt)
			}
			require.Equal(t, want, db.standing(t), "%+v", c)
		}
		_, err := outbox.New(db.dialect, outbox.WithConflict(9)).Schedule(t.Context(), db, "orders", first, delay.After(0))
		require.ErrorIs(t, err, delay.ErrInvalid)
		require.ErrorContains(t, err, "conflict")
	})
}

// TestScheduleAfterCancel has an identity that is scheduled again when its cancel was
// written, in the same transaction or in one before.
func TestScheduleAfterCancel(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		for _, policy := range []delay.Conflict{delay.Reject, delay.Keep, delay.Replace} {
			box := outbox.New(db.dialect, outbox.WithConflict(policy))
			for _, together := range []bool{true, false} {
				db.run(t, "DELETE FROM delay_outbox")
				commit(t, db, outbox.New(db.dialect))
				old := db.number(t, "SELECT id FROM delay_outbox")
				tx := db.begin(t)
				require.NoError(t, box.Cancel(within(t), tx, "orders", firstRef))
				if !together {
					require.NoError(t, tx.Commit())
					tx = db.begin(t)
				}
				ref, err := box.Schedule(within(t), tx, "orders", first, delay.After(time.Hour))
				require.NoError(t, err)
				require.Equal(t, firstRef, ref)
				if policy == delay.Reject {
					_, err = box.Schedule(within(t), tx, "orders", first, delay.After(time.Hour))
					require.ErrorIs(t, err, delay.ErrDuplicate, "the new one stands for the id")
				}
				require.NoError(t, tx.Commit())
				require.Equal(t, [2]int64{1, 1}, db.standing(t))
				if policy != delay.Replace {
					require.Equal(t, old, db.number(t, "SELECT target FROM delay_outbox WHERE op = 3"))
				}
				require.Equal(t, int64(2), db.number(t, "SELECT count(DISTINCT token) FROM delay_outbox WHERE op IN (0, 3)"))

				// What comes then is about the new one.
				replace := db.number(t, "SELECT id FROM delay_outbox WHERE op = 3")
				tx = db.begin(t)
				require.NoError(t, box.Cancel(within(t), tx, "orders", firstRef))
				require.NoError(t, tx.Commit())
				require.Equal(t, replace, db.number(t, "SELECT target FROM delay_outbox ORDER BY id DESC LIMIT 1"))
			}
		}
	})
}

// TestReplaceWaitsForNobody has a message that the relay has locked.
func TestReplaceWaitsForNobody(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		box := outbox.New(db.dialect, outbox.WithConflict(delay.Replace))
		commit(t, db, box)
		relay := lockAsRelay(t, db)
		one, other := db.begin(t), db.begin(t)
		for _, tx := range []transaction{one, other} {
			_, err := box.Schedule(within(t), tx, "orders", first, delay.After(time.Hour))
			require.NoError(t, err)
		}
		require.NoError(t, one.Commit())
		require.NoError(t, other.Commit())
		require.NoError(t, relay.Commit())
		require.Equal(t, [2]int64{1, 2}, db.standing(t))
	})
}

// TestGetOfOlderMessage has a message that lives, though one that came later has ended: its
// transaction took longer.
func TestGetOfOlderMessage(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		box := outbox.New(db.dialect)
		commit(t, db, box)
		live := db.number(t, "SELECT id FROM delay_outbox")
		db.run(t, "INSERT INTO delay_outbox (queue, message_key, message_id, topic, body, due_ms, status) VALUES ('orders', 'k', 'm1', 't', '', 1, 3)")
		row, err := box.Get(t.Context(), db, "orders", firstRef)
		require.NoError(t, err)
		require.Equal(t, live, row.Revision)
	})
}
