package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// traced makes the call of that name.
func traced(t testing.TB, q *store.Queue, verb, id, name string, when store.When, isFresh bool) store.Answer {
	t.Helper()
	unknown := new(store.UnknownError)
	require.ErrorAs(t, q.Producer().Traced(verb, id, "", name, time.Hour, isFresh), &unknown)
	switch p := q.Producer(); verb {
	case "cancel":
		return p.CancelAgain(t.Context(), &unknown.Call, store.Durability{})
	case "reschedule":
		return p.RescheduleAgain(t.Context(), &unknown.Call, when, store.Durability{})
	default:
		request := store.Request{Message: note(id, id), When: when, Earlier: &unknown.Call}
		return p.Schedule(t.Context(), []store.Request{request}, verb == "replace", store.Durability{})[0]
	}
}

// TestTraced: a call that is made again has the first one's answer and changes nothing, whatever it met
// then and meets now. As a fresh call it is done.
func TestTraced(t *testing.T) {
	t.Parallel()
	meetings := map[string]func(testing.TB, *store.Queue){
		"nothing": func(testing.TB, *store.Queue) {},
		"a waiting one": func(t testing.TB, q *store.Queue) {
			create(t, q, "a", later())
		},
		"one in flight": func(t testing.TB, q *store.Queue) {
			create(t, q, "a", past())
			newBridge(t, q).claim(1)
		},
	}
	for engine, connected := range map[string]func() *redis.Client{
		"redis":      func() *redis.Client { return shared(t) },
		"in-process": func() *redis.Client { return connect(t, "redis://"+miniredis.RunT(t).Addr()) },
	} {
		for _, verb := range []string{"schedule", "replace", "cancel", "reschedule"} {
			for met, meet := range meetings {
				t.Run(fmt.Sprintf("%s/%s meets %s", engine, verb, met), func(t *testing.T) {
					t.Parallel()
					rdb := connected()
					q := storetest.New(t, rdb, 1)
					meet(t, q)
					first := traced(t, q, verb, "a", "n", later(), false)
					require.NoError(t, first.Err)
					if met != "one in flight" { // Another message of the id is there by now.
						_ = cancel(t, q, "a")
						create(t, q, "a", later())
					}
					before := dump(t, rdb, q).Due
					again := traced(t, q, verb, "a", "n", later(), false)
					require.NoError(t, again.Err)
					assert.Equal(t, first.Code, again.Code)
					assert.Equal(t, before, sound(t, rdb, q).Due, "nothing was done")
					if met == "one in flight" {
						return
					}
					other := traced(t, q, verb, "a", "other", later(), false)
					fresh := traced(t, q, verb, "a", "n", later(), true)
					require.NoError(t, fresh.Err)
					if verb == "cancel" {
						assert.Equal(t, []store.Code{store.Done, store.NotFound}, []store.Code{other.Code, fresh.Code}, "they are done")
					}
					last := traced(t, q, verb, "a", "n", later(), false)
					assert.Equal(t, fresh.Code, last.Code, "the answer of the fresh one")
				})
			}
		}
	}
}

// TestTracedInSeveralLayouts: a call that is made again after changes of the layout has the first one's answer, although the home
// that it visits first has a later message of the id, and another home its trace.
func TestTracedInSeveralLayouts(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"schedule", "replace", "cancel", "reschedule"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			q := storetest.New(t, shared(t), 1)
			id := ""
			change := func(shards int) []int {
				_, err := q.Layouts().SetShards(t.Context(), shards)
				require.NoError(t, err)
				layout, err := q.LoadLayout(t.Context())
				require.NoError(t, err)
				return layout.AppendHomes(nil, id, "")
			}
			for n := 0; ; n++ {
				if id = fmt.Sprint("a", n); layout.Home("", id, 4) != 0 && layout.Home("", id, 2) == 0 {
					break
				}
			}
			create(t, q, id, later())
			require.Equal(t, []int{0, layout.Home("", id, 4)}, change(4))
			first := traced(t, q, verb, id, "n", later(), false)
			require.NoError(t, first.Err)
			_ = cancel(t, q, id)
			create(t, q, id, later())
			require.Equal(t, []int{layout.Home("", id, 4), 0}, change(2), "the later message is where it looks first")
			before, ok, err := inspect.Get(t.Context(), q, id, "")
			require.NoError(t, err)
			require.True(t, ok)

			again := traced(t, q, verb, id, "n", later(), false)
			require.NoError(t, again.Err)
			assert.Equal(t, first.Code, again.Code)
			after, ok, err := inspect.Get(t.Context(), q, id, "")
			require.NoError(t, err)
			require.True(t, ok, "nothing was done")
			assert.Equal(t, before, after)
		})
	}
}

// TestTracedWhereFenced: where a shard is bound to a later layout than the caller knows, the caller looks again.
func TestTracedWhereFenced(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 1)
	create(t, q, "a", later())
	_, err := q.Layouts().SetShards(t.Context(), 3)
	require.NoError(t, err)
	_, err = q.LoadLayout(t.Context())
	require.NoError(t, err)
	require.Equal(t, store.Replaced, traced(t, q, "replace", "a", "n", later(), false).Code)
	_, err = again(t, q.Name()).Layouts().SetShards(t.Context(), 4)
	require.NoError(t, err)
	require.Equal(t, store.Replaced, traced(t, q, "replace", "a", "n", later(), false).Code)
	require.EqualValues(t, 1, dump(t, shared(t), q).Counter("replaced"))
}
