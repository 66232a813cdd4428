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
