package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// under makes a call that schedules, under an idempotency key.
func (s *scene) under(key string, body any, headers ...string) answer {
	s.t.Helper()
	return s.call("POST", "/queues/QUEUE/messages", body, append([]string{"Idempotency-Key", key}, headers...)...)
}

// waiting is how many messages there are.
func (s *scene) waiting() int {
	s.t.Helper()
	return len(s.call("GET", "/queues/QUEUE/messages", nil).is(http.StatusOK)["messages"].([]any))
}

// publish claims all that is due and settles it as published.
func (s *scene) publish() (published int) {
	s.t.Helper()
	for shard := range 2 {
		claim, err := s.queue.Shard(shard).Claim(s.t.Context(), message.ClaimRequest{
			Token: message.ClaimToken{Instance: "bridge-1/boot", Number: uint64(time.Now().UnixNano())}, Max: 100, Timeout: time.Hour, Lease: time.Hour,
		})
		require.NoError(s.t, err)
		verdicts := make([]message.Verdict, len(claim.Messages))
		for i := range verdicts {
			verdicts[i] = message.Verdict{Verb: message.VerbAck, Published: true}
		}
		_, err = s.queue.Shard(shard).Settle(s.t.Context(), message.Settlement{Claim: claim, Verdicts: verdicts})
		require.NoError(s.t, err)
		published += len(claim.Messages)
	}
	return published
}

// TestIdempotencyKey has the first answer repeated, whatever has become of the message.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	storetest.SetRules(t, s.queue, layout.Rules{History: layout.History{Count: 100, Age: time.Hour}})
	for name, body := range map[string]map[string]any{
		"an id is made":   {"topic": "t", "in": "1h", "body": "1"},
		"an id is given":  {"topic": "t", "in": "1h", "id": "given/1", "key": "k"},
		"kept":            {"topic": "t", "in": "1h", "id": "kept", "conflict": "keep"},
		"replaced":        {"topic": "t", "in": "1h", "id": "replaced", "conflict": "replace"},
		"due at once":     {"topic": "t", "at": longAgo},
		"with everything": {"topic": "t", "in": "1h", "spread": "5m", "headers": map[string]string{"b": "1", "a": "2"}, "tags": []string{"x"}, "late": map[string]any{"after": "1h", "then": "drop"}},
	} {
		key := "of " + name
		first := s.under(key, body)
		created := first.is(http.StatusCreated)
		assert.Equal(t, "created", created["status"], name)
		assert.Empty(t, first.header.Get("Idempotent-Replayed"))
		same := func(when string) {
			again := s.under(`"`+key+`"`, body)
			assert.Equal(t, created, again.is(http.StatusCreated), "%s, %s", name, when)
			assert.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
		}
		same("at once")
		path := "/queues/QUEUE/messages/" + text(created["id"]) + "?key=" + text(created["key"])
		s.call("POST", strings.Replace(path, "?", ":publish-now?", 1), nil).is(http.StatusOK)
		same("moved")
		for published := 0; published == 0; { // "Now" may be a millisecond away.
			published = s.publish()
		}
		same("published")
		assert.Equal(t, "published", s.call("GET", path, nil).is(http.StatusOK)["state"], name)

		other := map[string]any{"topic": "t", "in": "2h"}
		assert.Equal(t, "Idempotency-Key", s.under(key, other).refused(http.StatusUnprocessableEntity, "key_reused"))
		s.call("POST", "/queues/QUEUE/messages:batch", map[string]any{"messages": []any{body}}, "Idempotency-Key", key).refused(http.StatusUnprocessableEntity, "key_reused")
		assert.Zero(t, s.waiting(), name)
	}

	s.schedule("taken")
	body := map[string]any{"id": "taken", "topic": "t", "in": "2h"}
	refused := s.under("refused", body)
	refused.refused(http.StatusConflict, "duplicate")
	s.call("DELETE", "/queues/QUEUE/messages/taken", nil).is(http.StatusOK)
	assert.Equal(t, string(refused.body), string(s.under("refused", body).body), "a refusal is an answer, too")
	s.under("corrected", map[string]any{"topic": "", "in": "1h"}).refused(http.StatusBadRequest, "invalid")
	s.under("corrected", map[string]any{"topic": "t", "in": "1h"}).is(http.StatusCreated)

	ttl := s.rdb.PTTL(t.Context(), s.record()).Val()
	assert.Greater(t, ttl, 24*time.Hour-time.Minute)
	assert.LessOrEqual(t, ttl, 24*time.Hour)
}

// record is the key of one of the records.
func (s *scene) record() string {
	s.t.Helper()
	keys, _, err := s.rdb.Scan(s.t.Context(), 0, "delay:{"+s.queue.Name()+":*}:once", 1_000_000).Result()
	require.NoError(s.t, err)
	require.NotEmpty(s.t, keys)
	return keys[0]
}

// TestIdempotencyKeyOfBatch: the whole batch is one request.
func TestIdempotencyKeyOfBatch(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	s.schedule("taken")
	batch := func(key string, topic string) answer {
		list := []map[string]any{{"id": "a", "topic": topic, "in": "1h"}, {"id": "taken", "topic": topic, "in": "1h"}, {"topic": ""}}
		for range 200 {
			list = append(list, map[string]any{"topic": topic, "in": "1h"})
		}
		return s.call("POST", "/queues/QUEUE/messages:batch", map[string]any{"messages": list}, "Idempotency-Key", key)
	}
	first := batch("b", "t")
	results := first.is(http.StatusOK)["results"].([]any)
	require.Len(t, results, 203)
	s.call("DELETE", "/queues/QUEUE/messages/taken", nil).is(http.StatusOK)
	s.call("DELETE", "/queues/QUEUE/messages/a", nil).is(http.StatusOK)
	again := batch("b", "t")
	assert.JSONEq(t, string(first.body), string(again.body))
	assert.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	batch("b", "u").refused(http.StatusUnprocessableEntity, "key_reused")
	page := s.call("GET", "/queues/QUEUE/messages?limit=1000", nil).is(http.StatusOK)
	assert.Len(t, page["messages"], 200)
}

// TestIdempotencyKeyIsTheCallers: two tokens never meet, nor do two queues.
func TestIdempotencyKeyIsTheCallers(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{tokens: "first-token-1 producer name=shop\nsecond-token-1 producer name=shop\nlimited-token-1 producer topics=pay\n" + operatorToken + " operator"})
	body := map[string]any{"topic": "t", "in": "1h", "body": "mine"}
	first := s.under("pay-1", body, bearer("first-token-1")...).is(http.StatusCreated)
	second := s.under("pay-1", body, bearer("second-token-1")...).is(http.StatusCreated)
	assert.Equal(t, "created", second["status"])
	assert.NotEqual(t, first["id"], second["id"])
	s.under("pay-1", map[string]any{"topic": "t", "in": "2h"}, bearer(operatorToken)...).is(http.StatusCreated)
	assert.Equal(t, first, s.under("pay-1", body, bearer("first-token-1")...).is(http.StatusCreated))

	limited := bearer("limited-token-1")
	mine := map[string]any{"id": "mine", "topic": "pay", "in": "1h", "conflict": "replace"}
	kept := s.under("pay-1", mine, limited...).is(http.StatusCreated)
	assert.Equal(t, kept, s.under("pay-1", mine, limited...).is(http.StatusCreated))
	theirs := map[string]any{"id": first["id"], "topic": "pay", "in": "1h", "conflict": "replace"}
	s.under("theirs", theirs, limited...).refused(http.StatusForbidden, "forbidden")
	s.call("DELETE", "/queues/QUEUE/messages/"+text(first["id"]), nil, bearer(operatorToken)...).is(http.StatusOK)
	assert.Equal(t, "created", s.under("theirs", theirs, limited...).is(http.StatusCreated)["status"], "nothing was done before")
	content := s.rdb.Get(t.Context(), s.record()).Val()
	for _, secret := range []string{"first-token-1", "mine", "pay-1"} {
		assert.NotContains(t, content, secret)
	}
}

// TestIdempotencyKeyRaces: of many that repeat at once, one does it; the others are told to
// wait, or the same.
func TestIdempotencyKeyRaces(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	const rounds, abreast = 40, 8
	var mu sync.Mutex
	for round := range rounds {
		ids := map[string]bool{}
		busy := 0
		var all sync.WaitGroup
		for range abreast {
			all.Go(func() {
				got := s.under(fmt.Sprint("race ", round), map[string]any{"topic": "t", "in": "1h"})
				mu.Lock()
				defer mu.Unlock()
				if got.status == http.StatusConflict {
					assert.Contains(t, string(got.body), `"key_in_use"`)
					busy++
					return
				}
				ids[text(got.is(http.StatusCreated)["id"])] = true
			})
		}
		all.Wait()
		require.Len(t, ids, 1, "%d were told to wait", busy)
	}
	page := s.call("GET", "/queues/QUEUE/messages?limit=1000", nil).is(http.StatusOK)
	assert.Len(t, page["messages"], rounds)
}

// TestIdempotencyKeyLimits: bad keys are refused by their name.
func TestIdempotencyKeyLimits(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	body := map[string]any{"topic": "t", "in": "1h"}
	for _, key := range []string{strings.Repeat("k", 256), `""`, "a\x80b", "ü"} {
		assert.Equal(t, "Idempotency-Key", s.under(key, body).refused(http.StatusBadRequest, "invalid"), "%.20q", key)
	}
	s.under(strings.Repeat("k", 255), body).is(http.StatusCreated)
	assert.Equal(t, 1, s.waiting())
}

// connCutter breaks connections to Redis that are about to send the end of a request.
type connCutter struct{ on atomic.Bool }

func (c *connCutter) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &cutConn{conn, c}, err
}

type cutConn struct {
	net.Conn

	cut *connCutter
}

func (c *cutConn) Write(b []byte) (int, error) {
	if c.cut.on.Load() && bytes.Contains(b, []byte("}:once\r\n")) && bytes.Contains(b, []byte("\r\n$1\r\na\r\n")) {
		return 0, errors.Join(net.ErrClosed, c.Close())
	}
	return c.Conn.Write(b)
}

// TestIdempotencyKeyAfterDeath: who has scheduled, and cannot tell so, says that it is
// unknown; who repeats the request has the answer, and makes no second message.
func TestIdempotencyKeyAfterDeath(t *testing.T) {
	t.Parallel()
	for _, conflict := range []string{"reject", "keep", "replace"} {
		c := &connCutter{}
		s := newScene(t, scenery{dial: c.dial})
		for i, body := range []map[string]any{{"topic": "t", "at": longAgo}, {"topic": "t", "at": longAgo, "id": "given", "key": "k"}} {
			key := fmt.Sprint("died ", i)
			body["conflict"] = conflict
			c.on.Store(true)
			s.under(key, body).refused(http.StatusGatewayTimeout, "unknown")
			c.on.Store(false)
			s.under(key, body).refused(http.StatusConflict, "key_in_use")
			require.Equal(t, 1, s.publish())

			record := s.record()
			text := s.rdb.Get(t.Context(), record).Val()
			fields := strings.SplitN(text, " ", 3)
			require.Len(t, fields, 3, text)
			require.NoError(t, s.rdb.Set(t.Context(), record, fields[0]+" 0 "+fields[2], redis.KeepTTL).Err()) // The lease ends.
			again := s.under(key, body).is(http.StatusCreated)
			assert.Equal(t, "created", again["status"])
			assert.Equal(t, "2020-01-01T00:00:00.000Z", again["due_at"])
			assert.Equal(t, again, s.under(key, body).is(http.StatusCreated))
			assert.Zero(t, s.waiting(), "no second message")
			require.NoError(t, s.rdb.Del(t.Context(), record).Err())
		}
	}
}

// TestIdempotencyKeyOfUnavailable: what was not done may be done under the same key.
func TestIdempotencyKeyOfUnavailable(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	meta := s.queue.Keys().Shard(0).Meta
	require.NoError(t, s.rdb.HSet(t.Context(), meta, "budget", "0 messages").Err())
	require.NoError(t, s.rdb.HSet(t.Context(), s.queue.Keys().Shard(1).Meta, "budget", "0 messages").Err())
	body := map[string]any{"topic": "t", "in": "1h"}
	s.under("full", body).refused(http.StatusInsufficientStorage, "full")
	require.NoError(t, s.rdb.HDel(t.Context(), meta, "budget").Err())
	require.NoError(t, s.rdb.HDel(t.Context(), s.queue.Keys().Shard(1).Meta, "budget").Err())
	created := s.under("full", body).is(http.StatusCreated)
	assert.Equal(t, created, s.under("full", body).is(http.StatusCreated))

	// Of a batch that was done in part, the rest is done by the repetition.
	require.NoError(t, s.rdb.HSet(t.Context(), meta, "budget", "0 messages").Err())
	batch := map[string]any{"messages": []any{}}
	for range 20 {
		batch["messages"] = append(batch["messages"].([]any), body)
	}
	put := func() (created int, due map[string]bool) {
		due = map[string]bool{}
		for _, r := range s.call("POST", "/queues/QUEUE/messages:batch", batch, "Idempotency-Key", "part").is(http.StatusOK)["results"].([]any) {
			if m := r.(map[string]any); m["status"] == "created" {
				created++
				due[text(m["id"])+text(m["due_at"])] = true
			}
		}
		return created, due
	}
	part, before := put()
	require.Positive(t, part)
	require.Less(t, part, 20)
	require.NoError(t, s.rdb.HDel(t.Context(), meta, "budget").Err())
	all, after := put()
	assert.Equal(t, 20, all)
	for one := range before {
		assert.Contains(t, after, one, "it is told as it was")
	}
	assert.Len(t, s.call("GET", "/queues/QUEUE/messages?limit=1000", nil).is(http.StatusOK)["messages"], 21)
}
