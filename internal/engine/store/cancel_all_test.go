package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestCancelAllOfATag: a message that has lost the tag since it was listed, since another one
// of its id was put in its place, stays.
func TestCancelAllOfATag(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	tag(t, q, note("a", ""), later(), "red")
	tag(t, q, note("b", ""), later(), "red")
	another := []store.Request{{Message: note("a", "another"), When: later()}}
	answered(t, store.Replaced, q.Producer().Schedule(t.Context(), another, true, store.Durability{})[0])
	answers := q.Producer().CancelMembers(t.Context(), "red", "a", "b")
	answered(t, store.NotFound, answers[0])
	answered(t, store.Done, answers[1])
	require.Contains(t, sound(t, rdb, q).Msg, "a")
}

// TestCancelAllAcrossLayouts: what waits in shards of an earlier layout is cancelled, too.
func TestCancelAllAcrossLayouts(t *testing.T) {
	t.Parallel()
	for name, by := range map[string][2]string{"tag": {"red", ""}, "key": {"", "k"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := storetest.New(t, shared(t), 5)
			put := func(id string) {
				m := note(id, "")
				m.Key = "k"
				tag(t, q, m, later(), "red")
			}
			put("a")
			for _, shards := range []int{3, 1} {
				_, err := q.Layouts().SetShards(t.Context(), shards)
				require.NoError(t, err)
				_, err = q.LoadLayout(t.Context())
				require.NoError(t, err)
				put("b" + string(rune('0'+shards)))
			}
			found, _, err := q.Producer().CancelAll(t.Context(), by[0], by[1], 10, store.Durability{})
			require.NoError(t, err)
			require.Equal(t, store.CancelledAll{Done: 3}, found)
		})
	}
}
