package store_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// once begins a request under that key, which must be in that state.
func once(t testing.TB, q *store.Queue, key string, want store.OnceState) *store.Once {
	t.Helper()
	o, err := q.Producer().Once(t.Context(), store.Digest(key), store.Digest("request"), time.Hour)
	require.NoError(t, err)
	require.Equal(t, want, o.State)
	return o
}

// scheduleOnce schedules a message as the n-th of the request.
func scheduleOnce(t testing.TB, q *store.Queue, o *store.Once, n int, id string, when store.When, replace bool) store.Answer {
	t.Helper()
	unknown := new(store.UnknownError)
	require.ErrorAs(t, o.Call(n, id, "", replace), &unknown)
	request := store.Request{Message: note(id, id), When: when, Earlier: &unknown.Call}
	return q.Producer().Schedule(t.Context(), []store.Request{request}, replace, store.Durability{})[0]
}

// TestOnceAfterDeath: a bridge dies after it has scheduled and before it has told so.
// Whatever became of the message since, a repetition has the same answer, and creates
// nothing; where the first one had not come so far, it does what is left.
func TestOnceAfterDeath(t *testing.T) {
	t.Parallel()
	for name, connected := range map[string]func() *redis.Client{
		"redis":      func() *redis.Client { return shared(t) },
		"in-process": func() *redis.Client { return connect(t, "redis://"+miniredis.RunT(t).Addr()) },
	} {
		for _, replace := range []bool{false, true} {
			for _, fate := range onceFates {
				t.Run(fmt.Sprintf("%s, replace %v, %s", name, replace, fate.name), func(t *testing.T) {
					t.Parallel()
					testOnceAfterDeath(t, connected(), replace, fate)
				})
			}
		}
	}
}

type onceFate struct {
	name string
	due  store.When
	meet func(testing.TB, *store.Queue, *bridge)
}

var onceFates = []onceFate{
	{"waits", later(), func(testing.TB, *store.Queue, *bridge) {}},
	{"was cancelled", later(), func(t testing.TB, q *store.Queue, _ *bridge) { require.Equal(t, store.Done, cancel(t, q, "a")) }},
	{"was published", past(), func(_ testing.TB, _ *store.Queue, b *bridge) { b.finish(acked) }},
	{"is in flight", past(), func(_ testing.TB, _ *store.Queue, b *bridge) { b.claim(1) }},
	{"is dead", past(), func(_ testing.TB, _ *store.Queue, b *bridge) { b.finish(buried) }},
	{"died and was purged", past(), func(t testing.TB, q *store.Queue, b *bridge) {
		b.finish(buried)
		_, err := inspect.NewAdmin(q).Purge(t.Context(), []string{"a"})
		require.NoError(t, err)
	}},
	{"was moved", later(), func(t testing.TB, q *store.Queue, _ *bridge) {
		require.Equal(t, store.Done, reschedule(t, q, "a", store.When{Relative: true, Ms: 2 * never.Milliseconds()}))
	}},
	{"was moved and published", later(), func(t testing.TB, q *store.Queue, b *bridge) {
		require.Equal(t, store.Done, reschedule(t, q, "a", past()))
		b.finish(acked)
	}},
	{"was replaced", later(), func(t testing.TB, q *store.Queue, _ *bridge) {
		require.Equal(t, store.Replaced, replace(t, q, "a", later()).Code)
	}},
	{"was published, and another has its id", past(), func(t testing.TB, q *store.Queue, b *bridge) {
		b.finish(acked)
		create(t, q, "a", later())
	}},
	{"was published, and another of its id is dead", past(), func(t testing.TB, q *store.Queue, b *bridge) {
		b.finish(acked)
		create(t, q, "a", past())
		b.finish(buried)
	}},
}

func replace(t testing.TB, q *store.Queue, id string, when store.When) store.Answer {
	t.Helper()
	answer := q.Producer().Schedule(t.Context(), []store.Request{{Message: note(id, "other"), When: when}}, true, store.Durability{})[0]
	require.NoError(t, answer.Err)
	return answer
}

func testOnceAfterDeath(t *testing.T, rdb *redis.Client, replace bool, fate onceFate) {
	t.Helper()
	q := storetest.New(t, rdb, 1)
	first := once(t, q, "k", store.OnceBegun)
	told := scheduleOnce(t, q, first, 0, "a", fate.due, replace)
	require.NoError(t, told.Err)
	require.Equal(t, store.Created, told.Code)
	fate.meet(t, q, newBridge(t, q))
	require.NoError(t, first.LetGo(t.Context())) // Its lease has ended.

	before := dump(t, rdb, q)
	second := once(t, q, "k", store.OnceAgain)
	require.Equal(t, first.ID(3), second.ID(3))
	again := scheduleOnce(t, q, second, 0, "a", fate.due, replace)
	require.NoError(t, again.Err)
	assert.Equal(t, told.Code, again.Code)
	assert.Equal(t, told.DueAt, again.DueAt, "the first due time")
	assert.Equal(t, before, sound(t, rdb, q), "nothing was done")

	// The second message of the request had not been scheduled: it is now, as one that
	// nobody has seen before.
	rest := scheduleOnce(t, q, second, 1, "b", later(), replace)
	require.NoError(t, rest.Err)
	assert.Equal(t, store.Created, rest.Code)
	found, ok, err := inspect.Get(t.Context(), q, "b", "")
	require.NoError(t, err)
	require.True(t, ok)
	assert.False(t, found.MaybePublished)
	assert.Equal(t, 1, found.Attempt)
	require.NoError(t, second.Answered(t.Context(), []byte("the answer\n{}")))
	assert.Equal(t, "the answer\n{}", string(once(t, q, "k", store.OnceAnswered).Answer))
	ttl := rdb.PTTL(t.Context(), q.Keys().Once(store.Digest("k"))).Val()
	assert.Greater(t, ttl, store.OnceKept-time.Minute)
}

// TestOnceReplaced: that a message took another's place is told again, too.
func TestOnceReplaced(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	create(t, q, "a", later())
	first := once(t, q, "k", store.OnceBegun)
	told := scheduleOnce(t, q, first, 0, "a", past(), true)
	require.Equal(t, store.Replaced, told.Code)
	newBridge(t, q).finish(acked)
	require.NoError(t, first.LetGo(t.Context()))
	assert.Equal(t, told, scheduleOnce(t, q, once(t, q, "k", store.OnceAgain), 0, "a", past(), true))
	assert.Empty(t, sound(t, rdb, q).Due)
}

// TestOnceLeavesOthersAlone: what was there before is as for any other call.
func TestOnceLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 1)
	create(t, q, "taken", later())
	first := once(t, q, "k", store.OnceBegun)
	assert.Equal(t, store.Waiting, scheduleOnce(t, q, first, 0, "taken", later(), false).Code)
	require.NoError(t, first.LetGo(t.Context()))
	again := once(t, q, "k", store.OnceAgain)
	assert.Equal(t, store.Waiting, scheduleOnce(t, q, again, 0, "taken", later(), false).Code)
	require.Equal(t, store.Done, cancel(t, q, "taken"))
	assert.Equal(t, store.Created, scheduleOnce(t, q, again, 0, "taken", later(), false).Code)
}

// TestOnceStates are those of a record.
func TestOnceStates(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	first := once(t, q, "k", store.OnceBegun)
	once(t, q, "k", store.OnceUnderWay)
	once(t, q, "l", store.OnceBegun)
	other, err := q.Producer().Once(t.Context(), store.Digest("k"), store.Digest("other"), time.Hour)
	require.NoError(t, err)
	assert.Equal(t, store.OnceOther, other.State)
	require.NoError(t, first.Forget(t.Context()))
	require.Error(t, first.Answered(t.Context(), nil), "it is gone")

	first = once(t, q, "k", store.OnceBegun)
	// Redis' clock was set back by an hour: the lease is longer than any.
	taken, err := q.Producer().Once(t.Context(), store.Digest("k"), store.Digest("request"), time.Second)
	require.NoError(t, err)
	require.Equal(t, store.OnceAgain, taken.State)
	require.Error(t, first.Answered(t.Context(), []byte("late")), "another has taken it over")
	require.Error(t, first.Forget(t.Context()))
	require.NoError(t, taken.Answered(t.Context(), []byte("right")))
	require.NoError(t, taken.Answered(t.Context(), []byte("right")), "its reply was lost")
	require.Error(t, taken.Answered(t.Context(), []byte("wrong")))
	assert.Equal(t, "right", string(once(t, q, "k", store.OnceAnswered).Answer))
}

// TestOnceRaces: of many that begin at once, one does.
func TestOnceRaces(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 1)
	for round := range 100 {
		var mu sync.Mutex
		counted := map[store.OnceState]int{}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				o, err := q.Producer().Once(t.Context(), store.Digest(fmt.Sprint(round)), "request", time.Hour)
				assert.NoError(t, err)
				mu.Lock()
				defer mu.Unlock()
				counted[o.State]++
			})
		}
		all.Wait()
		require.Equal(t, map[store.OnceState]int{store.OnceBegun: 1, store.OnceUnderWay: 7}, counted)
	}
}

// TestOnceAfterChange: tombstones do not follow a change of the shards, so what an unended
// request has done is unknown after it, and it does nothing more.
func TestOnceAfterChange(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 1)
	first := once(t, q, "k", store.OnceBegun)
	require.Equal(t, store.Created, scheduleOnce(t, q, first, 0, "a", past(), false).Code)
	newBridge(t, q).finish(acked)
	require.NoError(t, first.LetGo(t.Context()))
	_, err := q.Layouts().SetShards(t.Context(), 2)
	require.NoError(t, err)
	_, err = q.LoadLayout(t.Context())
	require.NoError(t, err)
	again := scheduleOnce(t, q, once(t, q, "k", store.OnceAgain), 0, "a", past(), false)
	require.ErrorIs(t, again.Err, store.ErrUnknown)
	_, ok, err := inspect.Get(t.Context(), q, "a", "")
	require.NoError(t, err)
	assert.False(t, ok)

	// One that ended before the change is told, and one that begins after it begins.
	fresh := once(t, q, "l", store.OnceBegun)
	require.Equal(t, store.Created, scheduleOnce(t, q, fresh, 0, "b", later(), false).Code)
}

// TestOnceOfFullRedis: a full Redis begins nothing, and ends what was begun.
func TestOnceOfFullRedis(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testenvPrivate(t, "--maxmemory-policy", "noeviction"))
	q := storetest.New(t, rdb, 1)
	begun, left := once(t, q, "begun", store.OnceBegun), once(t, q, "left", store.OnceBegun)
	require.NoError(t, left.LetGo(t.Context()))
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err := q.Producer().Once(t.Context(), "new", "request", time.Hour)
	require.ErrorIs(t, err, store.ErrFull)
	once(t, q, "left", store.OnceAgain)
	require.ErrorIs(t, scheduleOnce(t, q, begun, 0, "a", later(), false).Err, store.ErrFull)
	require.NoError(t, begun.Answered(t.Context(), []byte("full")))
	once(t, q, "begun", store.OnceAnswered)
}

// TestOnceBeyondBudget: what an unended request created is found, though the budget is used up.
func TestOnceBeyondBudget(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	first := once(t, q, "k", store.OnceBegun)
	told := scheduleOnce(t, q, first, 0, "a", later(), false)
	require.NoError(t, first.LetGo(t.Context()))
	require.NoError(t, rdb.HSet(t.Context(), q.Keys().Shard(0).Meta, "budget", "1 messages").Err())
	require.ErrorIs(t, scheduleOnce(t, q, once(t, q, "l", store.OnceBegun), 0, "b", later(), false).Err, store.ErrFull)
	assert.Equal(t, told, scheduleOnce(t, q, once(t, q, "k", store.OnceAgain), 0, "a", later(), false))
}

// TestOnceMemory keeps what a request costs Redis for a day within what docs/api.md says.
func TestOnceMemory(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testenvPrivate(t))
	q := storetest.New(t, rdb, 1)
	const requests = 2000
	used := func() int {
		n, err := strconv.Atoi(rdb.InfoMap(t.Context(), "memory").Val()["Memory"]["used_memory"])
		require.NoError(t, err)
		return n
	}
	before := used()
	for i := range requests {
		o := once(t, q, fmt.Sprint(i), store.OnceBegun)
		require.Equal(t, store.Created, scheduleOnce(t, q, o, 0, o.ID(0), past(), false).Code)
		require.NoError(t, o.Answered(t.Context(), []byte(`[{"key":"","due_at":"2031-01-01T00:00:00.000Z","status":"created"}]`)))
	}
	b := newBridge(t, q)
	for left := requests; left > 0; {
		claim := b.claim(store.MaxBatch)
		b.settle(claim, message.Verdict{Verb: message.VerbAck, Published: true})
		left -= len(claim.Messages)
	}
	key := q.Keys().Once(store.Digest("7"))
	record := rdb.MemoryUsage(t.Context(), key).Val()
	each := (used() - before) / requests
	t.Logf("%d bytes a request, %d of them its record", each, record)
	assert.Less(t, record, int64(450))
	assert.Less(t, each, 1000)
}

// onceWorks has requests begin, die, go on and end, wherever their records and messages are.
func onceWorks(t *testing.T, q *store.Queue, durable store.Durability) {
	t.Helper()
	for i := range 20 {
		key := fmt.Sprint("request ", i)
		first := once(t, q, key, store.OnceBegun)
		var told []store.Answer
		for _, o := range []func() *store.Once{
			func() *store.Once { return first },
			func() *store.Once {
				require.NoError(t, first.LetGo(t.Context()))
				return once(t, q, key, store.OnceAgain)
			},
		} {
			o := o()
			unknown := new(store.UnknownError)
			require.ErrorAs(t, o.Call(0, o.ID(0), "", i%2 == 1), &unknown)
			request := store.Request{Message: note(o.ID(0), key), When: later(), Earlier: &unknown.Call}
			answer := q.Producer().Schedule(t.Context(), []store.Request{request}, i%2 == 1, durable)[0]
			answered(t, store.Created, answer)
			told = append(told, answer)
			if len(told) == 2 {
				require.NoError(t, o.Answered(t.Context(), []byte("done")))
			}
		}
		require.Equal(t, told[0].DueAt, told[1].DueAt)
		require.Equal(t, "done", string(once(t, q, key, store.OnceAnswered).Answer))
		answered(t, store.Done, q.Producer().Cancel(t.Context(), first.ID(0), "", durable))
	}
}
