package outbox_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
)

// TestOperateInBatches has batches of more than one statement, with items that are invalid,
// unknown or there twice.
func TestOperateInBatches(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		const size = 450
		box := outbox.New(db.dialect)
		var all []delay.Request
		var refs []delay.Ref
		var changes []outbox.Change
		for i := range size {
			ref := delay.Ref{ID: fmt.Sprintf("m%03d", size-i), Key: "k"}
			all = append(all, delay.Request{Message: delay.Message{ID: ref.ID, Key: ref.Key, Topic: "t"}, When: inAnHour})
			refs, changes = append(refs, ref), append(changes, outbox.Change{Ref: ref, When: delay.At(time.UnixMilli(int64(i)))})
		}
		_, err := box.ScheduleBatch(t.Context(), db, "orders", all)
		require.NoError(t, err)
		refs[7].ID, changes[7].Ref.ID, changes[9].When = "", "", delay.When{}
		refs, changes = append(refs, delay.Ref{ID: "unknown"}, refs[0]), append(changes, outbox.Change{Ref: delay.Ref{ID: "unknown"}, When: atOnce})

		tx := db.begin(t)
		moved, err := box.RescheduleBatch(within(t), tx, "orders", changes)
		require.ErrorIs(t, err, delay.ErrInvalid)
		require.ErrorContains(t, err, "2 of 451")
		cancelled, err := box.CancelBatch(within(t), tx, "orders", refs)
		require.ErrorIs(t, err, delay.ErrInvalid)
		require.NoError(t, tx.Commit())
		for i, result := range moved {
			require.Equal(t, changes[i].Ref, result.Ref)
			require.Equal(t, i == 7 || i == 9, result.Err != nil, i)
		}
		for i, result := range cancelled {
			require.Equal(t, refs[i], result.Ref)
			require.Equal(t, i == 7, result.Err != nil, i)
		}
		count := func(op, target string) int64 {
			return db.number(t, "SELECT count(*) FROM delay_outbox o WHERE op = "+op+" AND "+target)
		}
		const mine = "target = (SELECT id FROM delay_outbox h WHERE h.op = 0 AND h.message_id = o.message_id)"
		require.Equal(t, int64(size-2), count("2", mine))
		require.Equal(t, int64(size), count("1", mine), "one is there twice")
		require.Equal(t, int64(1), count("1", "target IS NULL"))
		require.Equal(t, int64(1), count("2", "target IS NULL AND message_id = 'unknown'"))
		require.Equal(t, int64(1), count("2", "due_ms = 440 AND message_id = 'm010'"))

		results, err := box.CancelBatch(t.Context(), tx, "no queue", refs[:2])
		require.ErrorIs(t, err, delay.ErrInvalid)
		require.ErrorIs(t, results[1].Err, delay.ErrInvalid)
		results, err = box.CancelBatch(t.Context(), tx, "orders", nil)
		require.NoError(t, err)
		require.Empty(t, results)
	})
}

// TestOperationsInOppositeOrder: two transactions that change the same ids, in whatever order, do
// not deadlock.
func TestOperationsInOppositeOrder(t *testing.T) {
	t.Parallel()
	forEach(t, func(t *testing.T, db *database) {
		box := outbox.New(db.dialect)
		var forth []delay.Ref
		for i := range 300 {
			forth = append(forth, delay.Ref{ID: fmt.Sprintf("m%03d", i)})
		}
		back := slices.Clone(forth)
		slices.Reverse(back)
		for range 5 {
			var group errgroup.Group
			for _, refs := range [][]delay.Ref{forth, back} {
				tx := db.begin(t)
				group.Go(func() error {
					if _, err := box.CancelBatch(t.Context(), tx, "orders", refs); err != nil {
						return err
					}
					return tx.Commit()
				})
			}
			require.NoError(t, group.Wait())
		}
	})
}
