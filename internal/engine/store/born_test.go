package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestMarks is I11: a copy may be out of which Redis has lost the trace, and the
// script that puts the message back says so, by its own clock and memory.
func TestMarks(t *testing.T) {
	t.Parallel()
	const minute = time.Minute
	for name, c := range map[string]struct {
		mark      store.Mark
		due, made time.Duration // from now, from the shard's birth
		unknown   bool          // when the shard was born
		marked    bool
	}{
		"never":                         {mark: store.MarkNever, due: -never},
		"always":                        {mark: store.MarkAlways, due: never, marked: true},
		"due":                           {mark: store.MarkDue, due: -time.Second, marked: true},
		"nearly due":                    {mark: store.MarkDue, due: time.Second, marked: true},
		"not due":                       {mark: store.MarkDue, due: minute},
		"older, due":                    {mark: store.MarkDueIfOlder, due: -time.Second, made: -time.Second, marked: true},
		"older, not due":                {mark: store.MarkDueIfOlder, due: minute, made: -time.Second},
		"younger":                       {mark: store.MarkDueIfOlder, due: -time.Second, made: time.Second},
		"nobody knows":                  {mark: store.MarkDueIfOlder, due: -time.Second, made: -never, unknown: true},
		"made before there was a clock": {mark: store.MarkDueIfOlder, due: -time.Second, made: -1 << 62, marked: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newOutboxScene(t)
			born, err := s.q.Rows().Born(t.Context())
			require.NoError(t, err)
			require.Len(t, born, 1)
			now, err := redisNow(t.Context(), s.rdb)
			require.NoError(t, err)
			require.InDelta(t, now, born[0].UnixMilli(), 30_000)
			if c.unknown {
				require.NoError(t, s.rdb.HDel(t.Context(), storetest.Key(s.q.Name(), 0, "meta"), layout.BornField).Err())
				born, err = s.q.Rows().Born(t.Context())
				require.NoError(t, err)
				require.Equal(t, []time.Time{{}}, born)
			}
			row := store.Row{
				Token: s.t, Message: note(s.row, ""), DueAt: time.UnixMilli(now).Add(c.due), Mark: c.mark, Made: born[0].Add(c.made),
			}
			answered(t, store.Created, s.q.Rows().Put(t.Context(), []store.Row{row})[0])
			want := map[string]string{}
			if c.marked {
				want[s.row] = markedOnce
			}
			require.Equal(t, want, sound(t, s.rdb, s.q).Attempts)
		})
	}
}

// TestMarksOfAnEarlierHome is I11, too: the message may have been published from its home in an earlier layout, which
// Redis has lost since.
func TestMarksOfAnEarlierHome(t *testing.T) {
	t.Parallel()
	for name, isLost := range map[string]bool{"lost": true, "there": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := shared(t)
			q := storetest.New(t, rdb, 2)
			born, err := q.Rows().Born(t.Context())
			require.NoError(t, err)
			made, now := slices.MaxFunc(born, time.Time.Compare).Add(time.Millisecond), int64(0)
			for now <= made.UnixMilli() {
				now, err = redisNow(t.Context(), rdb)
				require.NoError(t, err)
			}
			if isLost {
				lose(t, rdb, q, 1)
				_, err = q.Layouts().Repair(t.Context())
				require.NoError(t, err)
			}
			_, err = q.Layouts().SetShards(t.Context(), 1)
			require.NoError(t, err)
			row := store.Row{
				Token: rowToken(1), Message: note(homed(2, 1), ""), DueAt: made, Mark: store.MarkDueIfOlder, Made: made, // Younger than its home of now.
			}
			answered(t, store.Created, q.Rows().Put(t.Context(), []store.Row{row})[0])
			counts, err := rdb.HGet(t.Context(), storetest.Key(q.Name(), 0, "attempts"), row.Message.ID).Result()
			if isLost {
				require.NoError(t, err)
				require.Equal(t, markedOnce, counts)
			} else {
				require.ErrorIs(t, err, redis.Nil)
			}
		})
	}
}
