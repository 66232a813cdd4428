package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestRenew: a message gives way only where it waits under the token that is named, and
// leaves nothing behind but its mark (I6, I11).
func TestRenew(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testenv.Redis(t))
	q := storetest.New(t, rdb, 1)
	rows, ctx := q.Rows(), t.Context()
	tags := must(message.WithTags(nil, []string{"old"}))
	put := func(id string, token int, due time.Time, mark store.Mark) {
		t.Helper()
		m := &message.Message{ID: id, Topic: "t", Headers: tags, Body: []byte("before")}
		answered(t, store.Created, rows.Put(ctx, []store.Row{{Token: rowToken(token), Message: m, DueAt: due, Mark: mark}})[0])
	}
	renew := func(id string, token, before int, due time.Time) store.Answer {
		m := &message.Message{ID: id, Topic: "t2", Headers: must(message.WithTags(nil, []string{"new"})), Body: []byte("after")}
		return rows.Renew(ctx, []store.Row{{Token: rowToken(token), Before: rowToken(before), Message: m, DueAt: due, Mark: store.MarkDue}})[0]
	}
	later := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	put("plain", 1, farAhead, store.MarkNever)
	put("marked", 2, farAhead, store.MarkAlways)
	put("due", 3, farAhead, store.MarkNever)
	put("flies", 4, time.Now().Add(-time.Minute), store.MarkNever)
	claim := newBridge(t, q).claim(10)
	require.Len(t, claim.Messages, 1)

	answered(t, store.NotFound, renew("plain", 11, 9, later))
	answered(t, store.NotFound, renew("nobody", 11, 1, later))
	answered(t, store.InFlight, renew("flies", 14, 4, later))
	answered(t, store.Replaced, renew("plain", 11, 1, later))
	answered(t, store.Mine, renew("plain", 11, 1, later))
	answered(t, store.DoneMaybePublished, renew("marked", 12, 2, later))
	answered(t, store.DoneMaybePublished, renew("marked", 12, 2, later))
	answered(t, store.DoneMaybePublished, renew("due", 13, 3, time.Now()))
	require.Error(t, rows.Renew(ctx, []store.Row{{Token: rowToken(15), Before: "not-of-an-outbox", Message: note("plain", "x")}})[0].Err)

	found, ok, err := inspect.Get(ctx, q, "plain", "")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "after", string(found.Body))
	require.Equal(t, "t2", found.Topic)
	require.True(t, later.Equal(found.DueAt))
	require.False(t, found.MaybePublished)

	// A late writer of the token before; and the row's own token once it has ended.
	late := store.Row{Token: rowToken(1), Message: note("plain", "before"), DueAt: farAhead}
	answered(t, store.Mine, rows.Put(ctx, []store.Row{late})[0])
	answered(t, store.Done, rows.CancelRow(ctx, store.Operation{ID: "plain", Token: rowToken(20), Target: rowToken(11)}))
	answered(t, store.EndedCancelled, rows.Put(ctx, []store.Row{late})[0])
	put("plain", 21, farAhead, store.MarkNever)
	answered(t, store.EndedCancelled, renew("plain", 11, 21, later))

	tokens, err := rows.Tokens(ctx, []store.Row{{Message: note("plain", "")}, {Message: note("nobody", "")}, {Message: note("flies", "")}})
	require.NoError(t, err)
	require.Equal(t, []string{rowToken(21), "", rowToken(4)}, tokens)
	after := dump(t, rdb, q)
	require.NoError(t, after.Check())
	require.EqualValues(t, 3, after.Counter("replaced"))
}
