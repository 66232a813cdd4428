package outbox

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func numbers(list []Entry) []int64 {
	found := []int64{}
	for _, e := range list {
		found = append(found, e.Number)
	}
	return found
}

func TestList(t *testing.T) {
	onBoth(t, func(t *testing.T, d *Database) {
		s := newScene(t, d)
		first := s.insert(insert{id: "a", key: "k", dueMs: 5, topic: "t", body: "12345"})
		stored := s.insert(insert{id: "b", state: stateStored, dueMs: 7})
		other := s.insert(insert{queue: "mails", id: "a"})
		cancel := s.insert(insert{id: "a", key: "k", verb: verbCancel})

		list := func(f Filter) []int64 {
			t.Helper()
			if f.Limit == 0 {
				f.Limit = 10
			}
			found, err := d.List(t.Context(), f)
			require.NoError(t, err)
			return numbers(found)
		}
		require.Equal(t, []int64{first, stored, other, cancel}, list(Filter{}))
		require.Equal(t, []int64{first, stored}, list(Filter{Limit: 2}))
		require.Equal(t, []int64{other, cancel}, list(Filter{Limit: 2, After: stored}))
		require.Equal(t, []int64{stored}, list(Filter{State: "stored"}))
		require.Equal(t, []int64{first, cancel}, list(Filter{State: "pending", Queue: "orders"}))
		require.Empty(t, list(Filter{Queue: "none"}))
		_, err := d.List(t.Context(), Filter{State: "nonsense", Limit: 1})
		require.ErrorIs(t, err, errState)

		key := "k"
		shown, err := d.Show(t.Context(), "orders", "a", &key)
		require.NoError(t, err)
		require.Equal(t, []int64{first, cancel}, numbers(shown))
		require.Equal(t, "schedule pending", shown[0].Verb+" "+shown[0].State)
		require.Equal(t, "cancel pending", shown[1].Verb+" "+shown[1].State)
		require.Equal(t, int64(5), shown[0].DueAt.UnixMilli())
		require.True(t, shown[1].DueAt.IsZero())
		require.Equal(t, int64(5), shown[0].Size)
		require.Less(t, shown[0].Age, time.Minute)
		shown, err = d.Show(t.Context(), "orders", "a", nil)
		require.NoError(t, err)
		require.Len(t, shown, 2)

		n, err := d.StoredRows(t.Context(), []string{"orders"})
		require.NoError(t, err)
		require.Equal(t, int64(1), n)
	})
}
