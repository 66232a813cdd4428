package table_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestNew: what was written since the floor, and what the horizon has reached since
// then; and by these numbers it is locked.
func TestNew(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := outboxtest.NewScene(t, d)
		put := func(id string, adjust outboxtest.Insert) int64 {
			adjust.ID = id
			return s.Insert(adjust)
		}
		put("before", outboxtest.Insert{DueMs: 10})
		put("taken", outboxtest.Insert{DueMs: 150, State: table.StateStored})
		reached := put("reached", outboxtest.Insert{DueMs: 150})
		put("not yet", outboxtest.Insert{DueMs: 201})
		floor, err := d.Pending().Newest(t.Context())
		require.NoError(t, err)
		written := put("written", outboxtest.Insert{DueMs: 5})
		both := put("both", outboxtest.Insert{DueMs: 200})
		put("far", outboxtest.Insert{DueMs: 300})
		put("done", outboxtest.Insert{DueMs: 5, State: table.StatePublished})
		cancel := put("written", outboxtest.Insert{Verb: table.VerbCancel})
		other := put("other", outboxtest.Insert{Queue: "mails", DueMs: 5})
		newest := put("foreign", outboxtest.Insert{Queue: "nobodys", DueMs: 5})

		queues := []string{s.Orders, "mails", "empty"}
		found, highest, err := d.Pending().New(t.Context(), queues, table.Floor{Number: floor, UntilMs: 100}, 200)
		require.NoError(t, err)
		require.Equal(t, newest, highest)
		require.Equal(t, map[string]table.Waiting{
			s.Orders: {NewOperations: []int64{cancel}, NewHeads: []int64{reached, written, both}},
			"mails":  {NewHeads: []int64{other}},
		}, found)
		require.NoError(t, d.Within(t.Context(), func(tx *table.Tx) error {
			numbers := []int64{reached, written, both, cancel, newest + 1}
			heads, err := tx.LockHeads(t.Context(), table.Work{Queue: s.Orders, Numbers: numbers, Operations: true, Most: 10})
			require.NoError(t, err)
			require.Equal(t, []int64{reached, both}, numbersOf(heads), "what has an operation is left to it")
			heads, err = tx.LockHeads(t.Context(), table.Work{Queue: s.Orders, Numbers: numbers, Blocked: []int64{both}, Most: 1})
			require.NoError(t, err)
			require.Equal(t, []int64{reached}, numbersOf(heads))
			operations, err := tx.LockOperations(t.Context(), table.Work{Queue: s.Orders, Numbers: numbers, Most: 10})
			require.NoError(t, err)
			require.Equal(t, []int64{cancel}, numbersOf(operations))
			return nil
		}))
		found, highest, err = d.Pending().New(t.Context(), queues, table.Floor{Number: newest, UntilMs: 200}, 200)
		require.NoError(t, err)
		require.Empty(t, found)
		require.Equal(t, newest, highest)
	})
}

func numbersOf(rows []*table.Row) (numbers []int64) {
	for _, r := range rows {
		numbers = append(numbers, r.Number)
	}
	return numbers
}

// TestPurgeGoesOn: a batch begins where the one before has ended.
func TestPurgeGoesOn(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := outboxtest.NewScene(t, d)
		s.InsertMany(1500, outboxtest.Soon)
		d.Exec(t, "UPDATE {t} SET status = 2, finished_ms = id")
		before := s.Insert(outboxtest.Insert{ID: "before", State: table.StatePublished})
		lastMs, more, err := d.Ended().Purge(t.Context(), time.Minute, 0)
		require.NoError(t, err)
		require.True(t, more)
		require.Equal(t, 500, s.Count("status = 2 AND finished_ms > 0"))
		require.Zero(t, s.Count(fmt.Sprintf("finished_ms <= %d", lastMs)))
		d.Exec(t, "UPDATE {t} SET finished_ms = 0 WHERE id = ?", before)
		_, more, err = d.Ended().Purge(t.Context(), time.Minute, lastMs)
		require.NoError(t, err)
		require.False(t, more)
		require.Equal(t, "published", s.State(before), "it is left to the next time")
		require.Zero(t, s.Count("finished_ms > 0"))
	})
}
