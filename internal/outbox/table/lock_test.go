package table_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestWritesWaitForNobody: a transaction that deletes or changes almost all rows of the table looks at
// no other ones, whose locks may be held for as long as Redis takes.
func TestWritesWaitForNobody(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		d = d.With(t, func(c *table.Config) { c.Discard = true })
		s := outboxtest.NewScene(t, d)
		for _, rows := range []int{4, 100, 3000} {
			d.Exec(t, "DELETE FROM {t}")
			s.InsertMany(rows, outboxtest.Soon)
			d.Exec(t, "UPDATE {t} SET status = 0")
			d.Analyze(t)
			lock := func(tx *table.Tx, most int) (numbers []int64) {
				locked, err := tx.LockHeads(t.Context(), table.Work{Queue: s.Orders, UntilMs: table.MaxDueMs, Most: most})
				require.NoError(t, err)
				require.Len(t, locked, most)
				for _, r := range locked {
					numbers = append(numbers, r.Number)
				}
				return numbers
			}
			require.NoError(t, d.Within(t.Context(), func(holder *table.Tx) error {
				lock(holder, 1)
				return d.Within(t.Context(), func(tx *table.Tx) error {
					numbers := lock(tx, rows-1)
					require.Regexp(t, `Index Scan using box_pkey|table=box (partitions= )?type=range `, plan(t, tx.SQL(), d.QueryChange(numbers)))
					updates := table.Updates{}
					for _, n := range numbers {
						updates.Set(n, table.Update{State: table.StatePublished})
					}
					return tx.Write(t.Context(), updates)
				})
			}), "%d rows", rows)
			require.Equal(t, 1, s.Count("status = 0"))
		}
	})
}

// TestLocksNeverMeet: where many take what is pending at once, from the place where the look has found
// the first of it, no transaction has to give way.
func TestLocksNeverMeet(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := outboxtest.NewScene(t, d)
		rows := s.InsertMany(3000, outboxtest.Soon)
		d.Exec(t, "UPDATE {t} SET status = 0")
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				for range 60 {
					err := d.Within(t.Context(), func(tx *table.Tx) error {
						_, err := tx.LockHeads(t.Context(), table.Work{Queue: s.Orders, UntilMs: table.MaxDueMs, After: table.Cursor{Ms: rows[0].DueMs - 1}, Most: 500})
						return err
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	})
}

// TestHeadsLeaveOperated: a transaction that brings messages to Redis holds none that has a pending
// operation, which is another one's work, however long Redis takes.
func TestHeadsLeaveOperated(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		if d.IsMariaDB(t) {
			t.Skip("MariaDB keeps the locks of rows that a subquery leaves out")
		}
		s := outboxtest.NewScene(t, d)
		rows := s.InsertMany(20, outboxtest.Soon)
		d.Exec(t, "UPDATE {t} SET status = 0")
		var list []table.Identity
		for _, r := range rows[5:10] {
			s.Insert(outboxtest.Insert{Key: r.Key, ID: r.ID, Verb: table.VerbCancel})
			list = append(list, r.Identity)
		}
		d.Analyze(t)
		require.NoError(t, d.Within(t.Context(), func(holder *table.Tx) error {
			heads, err := holder.LockHeads(t.Context(), table.Work{Queue: s.Orders, Operations: true, UntilMs: table.MaxDueMs, Most: 100})
			require.NoError(t, err)
			require.Len(t, heads, len(rows)-len(list))
			return d.Within(t.Context(), func(tx *table.Tx) error {
				groups, busy, err := tx.Gather(t.Context(), list)
				require.Empty(t, busy)
				require.Len(t, groups, len(list))
				return err
			})
		}))
	})
}
