package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// get is the message as it is stored.
func get(t *testing.T, q *store.Queue, m *message.Message) *message.Message {
	t.Helper()
	found, ok, err := inspect.Get(t.Context(), q, m.ID, m.Key)
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, found.Err)
	return &found.Message
}

// TestRescheduleKeepsUID: a message is named by its first token, which its reschedules leave
// in its headers, however it is built; a new schedule of the id has another name.
func TestRescheduleKeepsUID(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range message.MaxHeaders {
		many[fmt.Sprint("h", i)] = strings.Repeat("v", i)
	}
	cases := map[string]*message.Message{
		"plain":      {Topic: "t"},
		"body":       {Topic: "t", Body: []byte("\x09delay-uid\x10\x00\xff")},
		"no tags":    {Topic: "t", Body: []byte("\x0adelay-tags\x01a")},
		"long topic": {Topic: strings.Repeat("t", 200), Headers: map[string]string{"a": "b"}},
		"headers":    {Topic: "t", Headers: map[string]string{"a": "b", "z": ""}},
		"many":       {Topic: "t", Headers: many},
		"tags":       {Topic: "t", Headers: map[string]string{message.HeaderTags: "a,b"}},
		"long tags":  {Topic: "t", Headers: map[string]string{message.HeaderTags: strings.Repeat("a", 64) + "," + strings.Repeat("b", 64), "a": "b"}},
		"sealed":     {Topic: "t", Headers: map[string]string{message.HeaderTags: "a", message.HeaderLate: "1m dead", message.HeaderSealed: "k"}, Body: []byte("x")},
		"only seal":  {Topic: "t", Headers: map[string]string{message.HeaderSealed: "k"}, Body: []byte("x")},
	}
	for name, url := range map[string]string{"redis": testenv.Redis(t), "in-process": "redis://" + miniredis.RunT(t).Addr()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := storetest.New(t, connect(t, url), 1)
			for name, m := range cases {
				m := *m
				m.ID = name
				answered(t, store.Created, q.Producer().Schedule(t.Context(), []store.Request{{Message: &m, When: later()}}, false, store.Durability{})[0])
				before := get(t, q, &m)
				require.Equal(t, before.Token, before.UID(), name)
				for range 2 {
					answered(t, store.Done, q.Producer().Reschedule(t.Context(), m.ID, "", later(), store.Durability{}))
					after := get(t, q, &m)
					require.NotEqual(t, before.Token, after.Token, name)
					require.Equal(t, before.UID(), after.UID(), name)
					headers, uid := message.CutUID(after.Headers)
					require.Equal(t, before.Token, uid, name)
					require.Len(t, headers, len(before.Headers), name)
					for h, v := range before.Headers {
						require.Equal(t, v, headers[h], name)
					}
					require.Equal(t, string(before.Body), string(after.Body), name)
					require.Equal(t, before.ScheduledAt, after.ScheduledAt)
				}
				answered(t, store.Replaced, q.Producer().Schedule(t.Context(), []store.Request{{Message: &m, When: later()}}, true, store.Durability{})[0])
				require.NotEqual(t, before.UID(), get(t, q, &m).UID(), name)
			}
			page, err := inspect.NewAdmin(q).List(t.Context(), inspect.ListRequest{Limit: 10, Filter: inspect.Filter{Tag: "a"}})
			require.NoError(t, err)
			require.Len(t, page.Messages, 2, "the scripts find the tags in front")
			index, err := q.Redis(t.Context()).ZRange(t.Context(), storetest.Key(q.Name(), 0, "tags"), 0, -1).Result()
			require.NoError(t, err)
			require.NotContains(t, index, "a\x00no tags", "a body that looks like them")
		})
	}
}

// TestRowKeepsUID: the token of a row's reschedule takes the place of its own, also where it
// is brought back under that; and what somebody has written as a token is fit for a header.
func TestRowKeepsUID(t *testing.T) {
	t.Parallel()
	const first, second, odd = "~000000000000001", "~00000000000002", "~\n:0000000000001"
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	for i, token := range []string{first, odd} {
		m := note(fmt.Sprint("row", i), "x")
		due := time.Now().Add(never)
		answered(t, store.Created, q.Rows().Put(t.Context(), []store.Row{{Token: token, Message: m, DueAt: due}})[0])
		uid := message.UIDOf(token)
		require.Equal(t, uid, get(t, q, m).UID())
		next := fmt.Sprintf("%s%d", second, i)
		answered(t, store.Done, q.Rows().RescheduleRow(t.Context(), store.Operation{ID: m.ID, Token: next, Target: token}, due))
		require.Equal(t, next, get(t, q, m).Token)
		require.Equal(t, uid, get(t, q, m).UID())
	}
}
