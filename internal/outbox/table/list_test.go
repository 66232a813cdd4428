package table_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/outbox/outboxtest"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

func numbers(list []table.Entry) []int64 {
	found := []int64{}
	for _, e := range list {
		found = append(found, e.Number)
	}
	return found
}

func TestList(t *testing.T) {
	outboxtest.OnBoth(t, func(t *testing.T, d *outboxtest.Database) {
		s := outboxtest.NewScene(t, d)
		first := s.Insert(outboxtest.Insert{ID: "a", Key: "k", DueMs: 5, Topic: "t", Body: "12345"})
		stored := s.Insert(outboxtest.Insert{ID: "b", State: table.StateStored, DueMs: 7})
		other := s.Insert(outboxtest.Insert{Queue: "mails", ID: "a"})
		cancel := s.Insert(outboxtest.Insert{ID: "a", Key: "k", Verb: table.VerbCancel})

		list := func(f table.Filter) []int64 {
			t.Helper()
			if f.Limit == 0 {
				f.Limit = 10
			}
			found, err := d.Listing().List(t.Context(), f)
			require.NoError(t, err)
			return numbers(found)
		}
		require.Equal(t, []int64{first, stored, other, cancel}, list(table.Filter{}))
		require.Equal(t, []int64{first, stored}, list(table.Filter{Limit: 2}))
		require.Equal(t, []int64{other, cancel}, list(table.Filter{Limit: 2, After: stored}))
		require.Equal(t, []int64{stored}, list(table.Filter{State: "stored"}))
		require.Equal(t, []int64{first, cancel}, list(table.Filter{State: "pending", Queue: "orders"}))
		require.Empty(t, list(table.Filter{Queue: "none"}))
		_, err := d.Listing().List(t.Context(), table.Filter{State: "nonsense", Limit: 1})
		require.ErrorIs(t, err, table.ErrState)

		key := "k"
		shown, err := d.Listing().Show(t.Context(), "orders", "a", &key)
		require.NoError(t, err)
		require.Equal(t, []int64{first, cancel}, numbers(shown))
		require.Equal(t, "schedule pending", shown[0].Verb+" "+shown[0].State)
		require.Equal(t, "cancel pending", shown[1].Verb+" "+shown[1].State)
		require.Equal(t, int64(5), shown[0].DueAt.UnixMilli())
		require.True(t, shown[1].DueAt.IsZero())
		require.Equal(t, int64(5), shown[0].Size)
		require.Less(t, shown[0].Age, time.Minute)
		shown, err = d.Listing().Show(t.Context(), "orders", "a", nil)
		require.NoError(t, err)
		require.Len(t, shown, 2)

		n, err := d.Stored().Count(t.Context(), []string{"orders"})
		require.NoError(t, err)
		require.Equal(t, int64(1), n)
	})
}
