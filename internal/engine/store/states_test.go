package store_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// state is where a message may be when a producer asks, and what he is told.
type state struct {
	name  string
	enter func(*testing.T, *store.Queue, *bridge)

	get        store.Code // 0: not there
	marked     bool
	promised   bool // the due time is that of create(past()), whatever has happened since
	schedule   store.Code
	replace    store.Code
	cancel     store.Code
	reschedule store.Code
}

var states = []state{
	{
		name: "never seen", enter: func(*testing.T, *store.Queue, *bridge) {},
		schedule: store.Created, replace: store.Created, cancel: store.NotFound, reschedule: store.NotFound,
	},
	{
		name:  "scheduled",
		enter: func(t *testing.T, q *store.Queue, _ *bridge) { create(t, q, "x", past()) },
		get:   store.Waiting, schedule: store.Waiting, replace: store.Replaced, cancel: store.Done, reschedule: store.Done,
	},
	{
		name:  "scheduled far ahead",
		enter: func(t *testing.T, q *store.Queue, _ *bridge) { create(t, q, "x", later()) },
		get:   store.Waiting, schedule: store.Waiting, replace: store.Replaced, cancel: store.Done, reschedule: store.Done,
	},
	{
		name: "refused and retried",
		enter: func(t *testing.T, q *store.Queue, b *bridge) {
			create(t, q, "x", past())
			b.finish(retried)
		},
		promised: true,
		get:      store.Waiting, schedule: store.Waiting, replace: store.Replaced, cancel: store.Done, reschedule: store.Done,
	},
	{
		name: "released",
		enter: func(t *testing.T, q *store.Queue, b *bridge) {
			create(t, q, "x", past())
			b.finish(released)
		},
		promised: true,
		get:      store.Waiting, schedule: store.Waiting, replace: store.Replaced, cancel: store.Done, reschedule: store.Done,
	},
	{
		name: "parked",
		enter: func(t *testing.T, q *store.Queue, b *bridge) {
			create(t, q, "x", past())
			b.finish(parked)
		},
		promised: true,
		get:      store.Waiting, schedule: store.Waiting, replace: store.Replaced, cancel: store.Done, reschedule: store.Done,
	},
	{
		name: "retried and in flight",
		enter: func(t *testing.T, q *store.Queue, b *bridge) {
			create(t, q, "x", past())
			v := retried
			v.Delay = 0
			b.finish(v)
			require.Eventually(t, func() bool { return len(b.claim(1).Messages) == 1 }, soon, time.Millisecond)
		},
		promised: true,
		get:      store.InFlight, schedule: store.InFlight, replace: store.InFlight,
		cancel: store.InFlight, reschedule: store.InFlight,
	},
	{
		name: "retried and dead",
		enter: func(t *testing.T, q *store.Queue, b *bridge) {
			create(t, q, "x", past())
			v := retried
			v.Delay = 0
			b.finish(v)
			var claim message.Claim
			require.Eventually(t, func() bool { claim = b.claim(1); return len(claim.Messages) == 1 }, soon, time.Millisecond)
			b.settle(claim, buried)
		},
		promised: true,
		get:      store.Dead, schedule: store.Dead, replace: store.Replaced, cancel: store.Done, reschedule: store.Done,
	},
	{
		name: "outcome unknown",
		enter: func(t *testing.T, q *store.Queue, b *bridge) {
			create(t, q, "x", past())
			b.finish(unknown)
		},
		get: store.Waiting, marked: true, schedule: store.Waiting, replace: store.Replaced,
		cancel: store.DoneMaybePublished, reschedule: store.DoneMaybePublished,
	},
	{
		name: "reclaimed",
		enter: func(t *testing.T, q *store.Queue, b *bridge) {
			create(t, q, "x", past())
			b.claim(1)
			require.NoError(t, q.Shard(0).HandOver(t.Context(), b.Instance))
			b.Instance = "next"
			b.takeOver()
		},
		get: store.Waiting, marked: true, schedule: store.Waiting, replace: store.Replaced,
		cancel: store.DoneMaybePublished, reschedule: store.DoneMaybePublished,
	},
	{
		name: "in flight",
		enter: func(t *testing.T, q *store.Queue, b *bridge) {
			create(t, q, "x", past())
			b.claim(1)
		},
		get: store.InFlight, schedule: store.InFlight, replace: store.InFlight,
		cancel: store.InFlight, reschedule: store.InFlight,
	},
	{
		name: "dead",
		enter: func(t *testing.T, q *store.Queue, b *bridge) {
			create(t, q, "x", past())
			b.finish(buried)
		},
		get: store.Dead, schedule: store.Dead, replace: store.Replaced, cancel: store.Done, reschedule: store.Done,
	},
	{
		name: "dead, outcome unknown before",
		enter: func(t *testing.T, q *store.Queue, b *bridge) {
			create(t, q, "x", past())
			b.finish(unknown)
			v := buried
			v.Attempts.MaybeOut = 1
			b.finish(v)
		},
		get: store.Dead, marked: true, schedule: store.Dead, replace: store.Replaced,
		cancel: store.DoneMaybePublished, reschedule: store.DoneMaybePublished,
	},
	{
		name: "redriven",
		enter: func(t *testing.T, q *store.Queue, b *bridge) {
			create(t, q, "x", past())
			b.finish(buried)
			_, err := inspect.NewAdmin(q).Redrive(t.Context(), []string{"x"})
			require.NoError(t, err)
		},
		get: store.Waiting, schedule: store.Waiting, replace: store.Replaced, cancel: store.Done, reschedule: store.Done,
	},
	{
		name: "published",
		enter: func(t *testing.T, q *store.Queue, b *bridge) {
			create(t, q, "x", past())
			b.finish(acked)
		},
		schedule: store.Created, replace: store.Created, cancel: store.NotFound, reschedule: store.NotFound,
	},
	{
		name: "cancelled",
		enter: func(t *testing.T, q *store.Queue, _ *bridge) {
			create(t, q, "x", past())
			cancel(t, q, "x")
		},
		schedule: store.Created, replace: store.Created, cancel: store.NotFound, reschedule: store.NotFound,
	},
	{
		name: "purged",
		enter: func(t *testing.T, q *store.Queue, b *bridge) {
			create(t, q, "x", past())
			b.finish(buried)
			_, err := inspect.NewAdmin(q).Purge(t.Context(), []string{"x"})
			require.NoError(t, err)
		},
		schedule: store.Created, replace: store.Created, cancel: store.NotFound, reschedule: store.NotFound,
	},
}

// takeOver makes the bridge the holder, after it has reclaimed what is left.
func (b *bridge) takeOver() {
	b.t.Helper()
	request := b.request(0)
	_, err := b.q.Shard(0).Claim(b.t.Context(), request)
	require.NoError(b.t, err)
	for more := true; more; {
		_, more, err = b.q.Shard(0).Reclaim(b.t.Context(), message.Reclaim{Instance: b.Instance, Foreign: true})
		require.NoError(b.t, err)
	}
}

// TestStates asks every verb in every state.
func TestStates(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	for _, s := range states {
		for verb, ask := range map[string]func(*testing.T, *redis.Client, *store.Queue){
			"get": s.asksGet, "schedule": s.asksSchedule, "replace": s.asksReplace,
			"cancel": s.asksCancel, "reschedule": s.asksReschedule,
		} {
			t.Run(s.name+"/"+verb, func(t *testing.T) {
				t.Parallel()
				q := storetest.New(t, rdb, 1)
				s.enter(t, q, newBridge(t, q))
				ask(t, rdb, q)
				sound(t, rdb, q)
			})
		}
	}
}

func (s state) asksGet(t *testing.T, _ *redis.Client, q *store.Queue) {
	found, ok, err := inspect.Get(t.Context(), q, "x", "")
	require.NoError(t, err)
	require.Equal(t, s.get != 0, ok)
	if !ok {
		return
	}
	require.NoError(t, found.Err)
	require.Equal(t, s.get, found.Code)
	require.Equal(t, s.marked, found.MaybePublished)
	require.Equal(t, "x", string(found.Body))
	require.Equal(t, "v", found.Headers["h"])
	require.False(t, found.ScheduledAt.IsZero())
	require.False(t, found.DueAt.IsZero())
	if s.promised {
		require.Equal(t, past().Ms, found.DueAt.UnixMilli())
	}
	require.GreaterOrEqual(t, found.Attempt, 1)
	require.Equal(t, s.get == store.Dead, found.Reason == buried.Reason)
}

func (s state) asksSchedule(t *testing.T, rdb *redis.Client, q *store.Queue) {
	found, _, err := inspect.Get(t.Context(), q, "x", "")
	require.NoError(t, err)
	before := dump(t, rdb, q)
	answer := schedule(t, q, "x", later())
	require.Equal(t, s.schedule, answer.Code)
	switch s.schedule {
	case store.Created:
		require.Empty(t, dump(t, rdb, q).Attempts, "a new life")
		return
	case store.Dead:
		require.Equal(t, buried.Reason, answer.Reason)
	case store.Waiting:
		require.Equal(t, found.DueAt, answer.DueAt, "the due time in force")
	default: // In flight: there is nothing more to tell.
	}
	require.Equal(t, before, dump(t, rdb, q), "nothing was changed")
}

func (s state) asksReplace(t *testing.T, rdb *redis.Client, q *store.Queue) {
	before := dump(t, rdb, q)
	answer := q.Producer().Schedule(t.Context(), []store.Request{{Message: note("x", "new"), When: later()}}, true, store.Durability{})[0]
	answered(t, s.replace, answer)
	if s.replace == store.InFlight {
		require.Equal(t, before, dump(t, rdb, q), "nothing was changed")
		return
	}
	found, _, err := inspect.Get(t.Context(), q, "x", "")
	require.NoError(t, err)
	require.Equal(t, "new", string(found.Body))
	require.Equal(t, store.Waiting, found.Code)
	require.Equal(t, s.marked, found.MaybePublished, "the mark outlives the message")
	require.Equal(t, answer.DueAt, found.DueAt)
}

func (s state) asksCancel(t *testing.T, rdb *redis.Client, q *store.Queue) {
	before := dump(t, rdb, q)
	require.Equal(t, s.cancel, cancel(t, q, "x"))
	_, ok, err := inspect.Get(t.Context(), q, "x", "")
	require.NoError(t, err)
	require.Equal(t, s.cancel == store.InFlight, ok)
	if s.cancel == store.InFlight || s.cancel == store.NotFound {
		require.Equal(t, before, dump(t, rdb, q), "nothing was changed")
	}
}

func (s state) asksReschedule(t *testing.T, rdb *redis.Client, q *store.Queue) {
	before := dump(t, rdb, q)
	when := store.When{Ms: 4_000_000_000_000}
	answer := q.Producer().Reschedule(t.Context(), "x", "", when, store.Durability{})
	answered(t, s.reschedule, answer)
	if s.reschedule == store.InFlight || s.reschedule == store.NotFound {
		require.Equal(t, before, dump(t, rdb, q), "nothing was changed")
		return
	}
	require.Equal(t, when.Ms, answer.DueAt.UnixMilli())
	found, _, err := inspect.Get(t.Context(), q, "x", "")
	require.NoError(t, err)
	require.Equal(t, store.Waiting, found.Code)
	require.Equal(t, when.Ms, found.DueAt.UnixMilli())
	require.Equal(t, s.marked, found.MaybePublished)
	require.Equal(t, "x", string(found.Body))
}
