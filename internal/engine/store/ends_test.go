package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// history is a bound that no test reaches by chance.
var history = layout.History{Count: 10_000, Age: never}

// endOf is what the history tells of a message that has ended, or lives again.
func endOf(t testing.TB, q *store.Queue, id string, lives bool) *message.End {
	t.Helper()
	found, ok, err := inspect.Get(t.Context(), q, id, "")
	require.NoError(t, err)
	require.Equal(t, lives, ok, id)
	return found.End
}

// TestHistory: whatever ends a message, Get tells what became of it, also where it lives again.
func TestHistory(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := remember(t, storetest.New(t, rdb, 1), history)
	b := newBridge(t, q)
	purge := func(id string) {
		codes, err := inspect.NewAdmin(q).Purge(t.Context(), []string{id})
		require.NoError(t, err)
		require.Equal(t, []store.Code{store.Done}, codes)
	}
	topic := strings.Repeat("long.", 50) // Its length has two bytes.
	add := func(id string) {
		m := note(id, "body")
		m.Topic = topic
		answered(t, store.Created, q.Producer().Schedule(t.Context(), []store.Request{{Message: m, When: past()}}, false, store.Durability{})[0])
	}
	dropAs, ackAs := dropped, acked
	dropAs.Reason, ackAs.Place = "late by 2h (limit 1h)", "partition 3 offset 8812"

	for id, end := range map[string]struct {
		do   func(id string)
		want message.End
	}{
		"published":           {func(string) { b.finish(ackAs) }, message.End{Kind: message.EndPublished, Attempt: 1, Detail: ackAs.Place}},
		"published, 2nd copy": {func(string) { b.finish(unknown); b.finish(acked) }, message.End{Kind: message.EndPublished, Attempt: 2}},
		"dropped":             {func(string) { b.finish(dropAs) }, message.End{Kind: message.EndDropped, Attempt: 1, Detail: dropAs.Reason}},
		"cancelled":           {func(id string) { cancel(t, q, id) }, message.End{Kind: message.EndCancelled, Attempt: 1}},
		"cancelled, parked":   {func(id string) { b.finish(parked); cancel(t, q, id) }, message.End{Kind: message.EndCancelled, Attempt: 1}},
		"cancelled, retried":  {func(id string) { b.finish(retried); cancel(t, q, id) }, message.End{Kind: message.EndCancelled, Attempt: 2}},
		"cancelled, dead": {
			func(id string) { b.finish(buried); cancel(t, q, id) },
			message.End{Kind: message.EndCancelled, Attempt: 2, Detail: buried.Reason},
		},
		"purged": {func(id string) { b.finish(buried); purge(id) }, message.End{Kind: message.EndPurged, Attempt: 2, Detail: buried.Reason}},
		"purged by a job": {func(string) {
			b.finish(buried)
			letters := storetest.ListAll(t, q, inspect.ListRequest{Filter: inspect.Filter{State: inspect.StateDead}, Limit: 10}, nil)
			items := make([]store.BulkItem, len(letters))
			for i, token := range store.NewTokens(len(letters)) {
				items[i] = store.BulkItem{Member: letters[i].Member(), Token: token}
			}
			for _, answer := range q.ChangeMany(t.Context(), store.BulkChange{OnlyDead: true}, items) {
				answered(t, store.Done, answer)
			}
		}, message.End{Kind: message.EndPurged, Attempt: 2, Detail: buried.Reason}},
	} {
		add(id)
		end.do(id)
		got := endOf(t, q, id, false)
		require.NotNil(t, got, id)
		require.WithinDuration(t, q.Now(), got.At, time.Minute)
		end.want.At, end.want.DueAt, end.want.Topic = got.At, time.UnixMilli(past().Ms), topic
		require.Equal(t, end.want, *got, id)
		require.Nil(t, endOf(t, q, "another", false))

		create(t, q, id, later())
		require.Equal(t, got, endOf(t, q, id, true), "it lives again")
		require.Equal(t, store.Done, cancel(t, q, id))
		require.Equal(t, "topic", endOf(t, q, id, false).Topic, "the later end counts")
	}
	create(t, q, "dead", past())
	b.finish(buried)
	require.Equal(t, message.EndDead, endOf(t, q, "dead", true).Kind)
	reschedule(t, q, "dead", later())
	require.Equal(t, buried.Reason, endOf(t, q, "dead", true).Detail, "it was put back")
	sound(t, rdb, q)
}

// TestHistoryOfRows: what the row of a database has cancelled is told, too.
func TestHistoryOfRows(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := remember(t, storetest.New(t, rdb, 1), history)
	var rows []store.Row
	for n, id := range []string{"operation", "removed", "not here"} {
		rows = append(rows, store.Row{Token: rowToken(n), Message: note(id, "b"), DueAt: farAhead})
	}
	putAll(t, q, rows[:2], store.Created)
	answered(t, store.Done, q.Rows().CancelRow(t.Context(), store.Operation{ID: "operation", Token: rowToken(10), Target: rowToken(0)}))
	n, err := q.Rows().Remove(t.Context(), []store.RowFate{{ID: "removed", Token: rowToken(1), What: store.FateCancelled}})
	require.NoError(t, err)
	require.Equal(t, 1, n)
	answered(t, store.NotFound, q.Rows().CancelRow(t.Context(), store.Operation{ID: "not here", Token: rowToken(12), Target: rowToken(2)}))
	require.Equal(t, message.EndCancelled, endOf(t, q, "operation", false).Kind)
	require.Equal(t, farAhead.UnixMilli(), endOf(t, q, "operation", false).DueAt.UnixMilli())
	require.Equal(t, message.EndCancelled, endOf(t, q, "removed", false).Kind)
	require.Nil(t, endOf(t, q, "not here", false))
	sound(t, rdb, q)
}

// TestNoHistory: a queue that keeps none has no key of it, and one that keeps it no more
// tells nothing.
func TestNoHistory(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	b := newBridge(t, q)
	ends := func() {
		create(t, q, "published", past())
		b.finish(acked)
		create(t, q, "cancelled", later())
		require.Equal(t, store.Done, cancel(t, q, "cancelled"))
	}
	ends()
	require.Empty(t, sound(t, rdb, q).Ends)
	remember(t, q, history)
	ends()
	require.Len(t, sound(t, rdb, q).Ends, 2)
	remember(t, q, layout.History{})
	require.Nil(t, endOf(t, q, "published", false))
}

// TestDeadNoMore: a producer that does not know yet of the history cancels a dead letter: nobody is
// told that it is dead. It checks I11.
func TestDeadNoMore(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	old := store.New(rdb, storetest.Prefix, q.Name())
	_, err := old.LoadLayout(t.Context())
	require.NoError(t, err)
	remember(t, q, history)
	create(t, q, "dead", past())
	newBridge(t, q).finish(buried)
	require.Equal(t, message.EndDead, endOf(t, q, "dead", true).Kind)
	require.Equal(t, store.Done, cancel(t, old, "dead"))
	require.Nil(t, endOf(t, q, "dead", false))
}

// TestHistoryIsBounded: by count, over all shards together, and by age.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := remember(t, storetest.New(t, rdb, 1), layout.History{Count: 50, Age: never})
	b := newBridge(t, q)
	for i := range 400 {
		create(t, q, fmt.Sprint("p-", i), past())
	}
	b.settle(b.claim(300), acked)
	require.Len(t, sound(t, rdb, q).Ends, 50, "more at once than there may be")
	b.settle(b.claim(100), acked)
	create(t, q, "z-last", later())
	require.Equal(t, store.Done, cancel(t, q, "z-last"))
	require.Len(t, sound(t, rdb, q).Ends, 50)
	require.NotNil(t, endOf(t, q, "z-last", false))

	remember(t, q, layout.History{Count: 50, Age: time.Millisecond})
	for len(sound(t, rdb, q).Ends) > 1 { // Each end takes some of the old ones along.
		create(t, q, "next", later())
		require.Equal(t, store.Done, cancel(t, q, "next"))
	}
	require.Nil(t, endOf(t, q, "z-last", false))
}

// TestHistoryInTheWay: what makes a history impossible to write stops nothing else.
func TestHistoryInTheWay(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	for _, name := range []string{"ended", "ends"} {
		q := remember(t, storetest.New(t, rdb, 1), history)
		b := newBridge(t, q)
		require.NoError(t, rdb.Set(t.Context(), storetest.Key(q.Name(), 0, name), "another's", 0).Err())
		for _, id := range []string{"acked", "buried"} {
			create(t, q, id, past())
		}
		s := settlement(b.claim(10), acked)
		s.Verdicts[1] = buried
		stale, err := q.Shard(0).Settle(t.Context(), s)
		require.NoError(t, err)
		require.False(t, stale)
		codes, err := inspect.NewAdmin(q).Purge(t.Context(), []string{"buried"})
		require.NoError(t, err)
		require.Equal(t, []store.Code{store.Done}, codes)
		create(t, q, "cancelled", later())
		require.Equal(t, store.Done, cancel(t, q, "cancelled"))
		require.Equal(t, int64(0), rdb.HLen(t.Context(), storetest.Key(q.Name(), 0, "msg")).Val())
	}
}

// TestHistoryInFullRedis: a Redis at its limit gets free by what is published and
// cancelled, and nothing of that is remembered.
func TestHistoryInFullRedis(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testenvPrivate(t, "--maxmemory", "12mb", "--maxmemory-policy", "noeviction"))
	q := remember(t, storetest.New(t, rdb, 1), history)
	b := newBridge(t, q)
	fill(t, rdb, q)
	b.settle(b.claim(1), acked)
	require.Zero(t, rdb.HLen(t.Context(), storetest.Key(q.Name(), 0, "ends")).Val(), "memory is short")
	for {
		claim := b.claim(100)
		if len(claim.Messages) == 0 {
			break
		}
		b.settle(claim, acked)
	}
	create(t, q, "after", later())
	require.Equal(t, store.Done, cancel(t, q, "after"))
	require.NotNil(t, endOf(t, q, "after", false))
	sound(t, rdb, q)
}

// TestHistoryAfterAChange: an end stays where it is, and is found there when the
// message's home is another one, and nothing of the earlier layout is left.
func TestHistoryAfterAChange(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := remember(t, storetest.New(t, rdb, 4), history)
	for i := range 20 {
		id := fmt.Sprint("m-", i)
		create(t, q, id, later())
		require.Equal(t, store.Done, cancel(t, q, id))
	}
	l, err := q.LoadLayout(t.Context())
	require.NoError(t, err)
	want := *l
	want.Shards, want.Epoch, want.Earlier = 5, layout.NextEpoch(l.Epoch), nil
	require.NoError(t, rdb.HSet(t.Context(), q.Keys().Layout(), "shards", 5, "epoch", want.Epoch).Err())
	_, err = q.Layouts().Ensure(t.Context(), want)
	require.NoError(t, err)
	t.Cleanup(func() { storetest.Remove(t.Context(), rdb, q.Name(), 5) })
	moved := 0
	for i := range 20 {
		id := fmt.Sprint("m-", i)
		if now, err := q.LoadLayout(t.Context()); err == nil && now.Home(id, "") != l.Home(id, "") {
			moved++
		}
		require.NotNil(t, endOf(t, q, id, false), id)
	}
	require.Positive(t, moved)
}
