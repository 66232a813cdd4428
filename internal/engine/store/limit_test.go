package store_test

import (
	"context"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestWithTopics: wherever a message is, a caller of other topics changes nothing of it
// and learns nothing of it, and one of its topic may do what anybody may.
func TestWithTopics(t *testing.T) {
	t.Parallel()
	for name, connected := range map[string]func() *redis.Client{
		"redis":      func() *redis.Client { return shared(t) },
		"in-process": func() *redis.Client { return connect(t, "redis://"+miniredis.RunT(t).Addr()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, topic := range []string{"topic", strings.Repeat("long.", 40)} {
				testTopics(t, connected(), topic)
			}
		})
	}
}

func testTopics(t *testing.T, rdb *redis.Client, topic string) {
	t.Helper()
	q := storetest.New(t, rdb, 1)
	made := func(id string) *message.Message { return &message.Message{ID: id, Topic: topic, Body: []byte(id)} }
	put := func(ctx context.Context, id string, when store.When, replace bool) store.Answer {
		return q.Producer().Schedule(ctx, []store.Request{{Message: made(id), When: when}}, replace, store.Durability{})[0]
	}
	require.Equal(t, store.Created, put(t.Context(), "dead", past(), false).Code)
	b := newBridge(t, q)
	b.settle(b.claim(1), message.Verdict{Verb: message.VerbDeadLetter, Reason: "12:3: refused"})
	require.Equal(t, store.Created, put(t.Context(), "flies", past(), false).Code)
	require.Len(t, b.claim(1).Messages, 1)
	require.Equal(t, store.Created, put(t.Context(), "waits", later(), false).Code)
	require.Equal(t, store.Created, put(t.Context(), "bare", later(), false).Code)
	require.NoError(t, rdb.HDel(t.Context(), q.Keys().Shard(0).Msg, "bare").Err()) // Nobody knows whose it is.

	verbs := map[string]func(ctx context.Context, id string) store.Answer{
		"cancel": func(ctx context.Context, id string) store.Answer {
			return q.Producer().Cancel(ctx, id, "", store.Durability{})
		},
		"reschedule": func(ctx context.Context, id string) store.Answer {
			return q.Producer().Reschedule(ctx, id, "", later(), store.Durability{})
		},
		"replace":  func(ctx context.Context, id string) store.Answer { return put(ctx, id, later(), true) },
		"schedule": func(ctx context.Context, id string) store.Answer { return put(ctx, id, later(), false) },
	}
	before := dump(t, rdb, q)
	// Parts of it, and what is written as a list of topics is, are other topics.
	others := store.WithTopics(t.Context(), []string{"", topic[1:], topic + "x", "5:" + topic, "x7:" + topic})
	for verb, run := range verbs {
		for _, id := range []string{"waits", "flies", "dead", "bare"} {
			if verb == "schedule" && id == "bare" {
				continue // It is created: what has no body is nobody's message, see schedule.lua.
			}
			assert.Equal(t, store.Answer{Code: store.OtherTopic}, run(others, id), "%s of what %s", verb, id)
		}
	}
	assert.Equal(t, before, dump(t, rdb, q))
	assert.Equal(t, store.NotFound, verbs["cancel"](others, "nobodys").Code)
	assert.Equal(t, store.NotFound, verbs["reschedule"](others, "nobodys").Code)

	mine := store.WithTopics(t.Context(), []string{"other", topic})
	for _, step := range []struct {
		verb, id string
		want     store.Code
	}{
		{"schedule", "waits", store.Waiting},
		{"schedule", "flies", store.InFlight},
		{"schedule", "dead", store.Dead},
		{"reschedule", "waits", store.Done},
		{"reschedule", "flies", store.InFlight},
		{"replace", "flies", store.InFlight},
		{"replace", "dead", store.Replaced},
		{"cancel", "dead", store.Done},
		{"cancel", "waits", store.Done},
		{"replace", "waits", store.Created},
	} {
		answer := verbs[step.verb](mine, step.id)
		require.NoError(t, answer.Err)
		assert.Equal(t, step.want, answer.Code, "%s of what %s", step.verb, step.id)
	}
}

// TestCallsOfOneLimitTravelTogether: limits of others are not mixed where calls share runs.
func TestCallsOfOneLimitTravelTogether(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 1).WithCoalescing()
	create(t, q, "a", later())
	answers := make(chan store.Code, 300)
	for i := range cap(answers) {
		ctx := store.WithTopics(t.Context(), [][]string{{"other"}, {"topic"}, nil}[i%3])
		go func() {
			answer := q.Producer().Reschedule(ctx, "a", "", later(), store.Durability{})
			assert.NoError(t, answer.Err)
			answers <- answer.Code
		}()
	}
	counted := map[store.Code]int{}
	for range cap(answers) {
		counted[<-answers]++
	}
	assert.Equal(t, map[store.Code]int{store.Done: 200, store.OtherTopic: 100}, counted)
}

// TestLimitCostsNobodyElse: Redis runs as many commands for a caller without a limit as
// for one that there is none for.
func TestLimitCostsNobodyElse(t *testing.T) {
	l := newLife(t, 100)
	for i := range l.list {
		l.list[i].When = later()
	}
	spent := func(ctx context.Context) uint64 {
		first := l.counted()[commands]
		before := l.counted()[commands]
		for _, answer := range l.q.Producer().Schedule(ctx, l.list, false, store.Durability{}) {
			require.Equal(t, store.Created, answer.Code)
		}
		for _, m := range l.list {
			require.Equal(t, store.Done, l.q.Producer().Cancel(ctx, m.Message.ID, "", store.Durability{}).Code)
		}
		return l.counted()[commands] - before - (before - first)
	}
	spent(t.Context())
	assert.Equal(t, spent(t.Context()), spent(store.WithTopics(t.Context(), []string{"t"})), "where nothing stands in the way, the limit asks nothing")
}
