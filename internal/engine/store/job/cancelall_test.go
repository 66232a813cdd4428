package job_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestCancelAllOfATag: a message that has lost the tag since it was listed, since another one
// of its id was put in its place, stays.
func TestCancelAllOfATag(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	storetest.Tag(t, q, storetest.Note("a", ""), storetest.Later(), "red")
	storetest.Tag(t, q, storetest.Note("b", ""), storetest.Later(), "red")
	another := []store.Request{{Message: storetest.Note("a", "another"), When: storetest.Later()}}
	storetest.Answered(t, store.Replaced, q.Producer().Schedule(t.Context(), another, true, store.Durability{})[0])
	answers := q.Producer().CancelMembers(t.Context(), "red", []string{"a", "b"}, store.Durability{})
	storetest.Answered(t, store.NotFound, answers[0])
	storetest.Answered(t, store.Done, answers[1])
	require.Contains(t, storetest.Sound(t, rdb, q).Msg, "a")
}

// TestCancelAllAcrossLayouts: what waits in shards of an earlier layout is cancelled, too.
func TestCancelAllAcrossLayouts(t *testing.T) {
	t.Parallel()
	for name, by := range map[string][2]string{"tag": {"red", ""}, "key": {"", "k"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := storetest.New(t, shared(t), 5)
			put := func(id string) {
				m := storetest.Note(id, "")
				m.Key = "k"
				storetest.Tag(t, q, m, storetest.Later(), "red")
			}
			put("a")
			for _, shards := range []int{3, 1} {
				_, err := q.Layouts().SetShards(t.Context(), shards)
				require.NoError(t, err)
				_, err = q.LoadLayout(t.Context())
				require.NoError(t, err)
				put("b" + string(rune('0'+shards)))
			}
			found, _, err := job.CancelAll(t.Context(), q, by[0], by[1], 10, store.Durability{})
			require.NoError(t, err)
			require.Equal(t, job.CancelTally{Done: 3}, found)
		})
	}
}

// TestCancelAllByAnOldLayout: who learns on the way that there are fewer shards goes through the
// homes that the Key has by them, too.
func TestCancelAllByAnOldLayout(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 3)
	other := store.New(rdb, storetest.Prefix, q.Name())
	old, err := other.LoadLayout(t.Context())
	require.NoError(t, err)
	m := storetest.Note("a", "")
	m.Key = "k"
	for old.Home(m.ID, m.Key) == 0 {
		m.Key += "k"
	}
	_, err = q.Layouts().SetShards(t.Context(), 1)
	require.NoError(t, err)
	_, err = q.LoadLayout(t.Context())
	require.NoError(t, err)
	storetest.Tag(t, q, m, storetest.Later(), "red")
	found, _, err := job.CancelAll(t.Context(), other, "", m.Key, 10, store.Durability{})
	require.NoError(t, err)
	require.Equal(t, job.CancelTally{Done: 1}, found)
}
