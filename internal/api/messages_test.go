package api_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// TestLifeOfAMessage: scheduled, seen, moved, listed, cancelled, and each of it in the audit.
func TestLifeOfAMessage(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	created := s.call("POST", "/queues/QUEUE/messages", map[string]any{
		"id": "order-42/timeout", "key": "order-42", "topic": "order.timeout", "headers": map[string]string{"a": "b"},
		"body": "secret payload", "in": "30m", "tags": []string{"vip", "eu"},
	}).is(http.StatusCreated)
	assert.Equal(t, "created", created["status"])
	due, err := time.Parse("2006-01-02T15:04:05.000Z", text(created["due_at"]))
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now().Add(30*time.Minute), due, time.Minute)

	for _, path := range []string{"/queues/QUEUE/messages/order-42%2Ftimeout?key=order-42", "/queues/QUEUE/messages/order-42/timeout?key=order-42"} {
		got := s.call("GET", path, nil).is(http.StatusOK)
		assert.Equal(t, map[string]any{
			"id": "order-42/timeout", "key": "order-42", "queue": s.queue.Name(), "topic": "order.timeout", "state": "scheduled", "due_at": created["due_at"],
			"scheduled_at": got["scheduled_at"], "attempt": 1.0, "maybe_published": false, "headers": map[string]any{"a": "b"}, "tags": []any{"eu", "vip"},
		}, got)
	}
	got := s.call("GET", "/queues/QUEUE/messages/order-42%2Ftimeout?key=order-42&body=1", nil).is(http.StatusOK)
	assert.Equal(t, "secret payload", got["body"])
	for _, method := range []string{"GET", "DELETE"} { // Not found would be taken for gone.
		forgotten := s.call(method, "/queues/QUEUE/messages/order-42%2Ftimeout", nil)
		assert.Equal(t, "key", forgotten.refused(http.StatusBadRequest, "invalid"))
		assert.Contains(t, string(forgotten.body), `\"order-42\"`)
	}
	s.call("GET", "/queues/QUEUE/messages/never", nil).refused(http.StatusNotFound, "not_found")

	moved := s.call("POST", "/queues/QUEUE/messages/order-42%2Ftimeout:reschedule?key=order-42", map[string]any{"at": "2031-01-01T00:00:00Z"}).is(http.StatusOK)
	assert.Equal(t, map[string]any{"status": "rescheduled", "maybe_published": false}, moved)
	list := s.call("GET", "/queues/QUEUE/messages", nil).is(http.StatusOK)
	require.Len(t, list["messages"], 1)
	assert.Equal(t, "2031-01-01T00:00:00.000Z", list["messages"].([]any)[0].(map[string]any)["due_at"])
	assert.Empty(t, list["next_cursor"])

	assert.Len(t, s.call("GET", "/queues/QUEUE/messages?tag=vip", nil).is(http.StatusOK)["messages"], 1)
	assert.Empty(t, s.call("GET", "/queues/QUEUE/messages?tag=other", nil).is(http.StatusOK)["messages"])
	now := s.call("POST", "/queues/QUEUE/messages/order-42%2Ftimeout:publish-now?key=order-42", nil).is(http.StatusOK)
	assert.Equal(t, map[string]any{"status": "rescheduled", "maybe_published": false}, now)
	due, err = time.Parse("2006-01-02T15:04:05.000Z", text(s.call("GET", "/queues/QUEUE/messages/order-42%2Ftimeout?key=order-42", nil).is(http.StatusOK)["due_at"]))
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now(), due, time.Minute)

	cancelled := s.call("DELETE", "/queues/QUEUE/messages/order-42%2Ftimeout?key=order-42", nil).is(http.StatusOK)
	assert.Equal(t, map[string]any{"status": "cancelled", "maybe_published": false}, cancelled)
	s.call("DELETE", "/queues/QUEUE/messages/order-42%2Ftimeout?key=order-42", nil).refused(http.StatusNotFound, "not_found")

	var log []string
	changes := s.call("GET", "/audit?queue=QUEUE", nil).is(http.StatusOK)
	for _, c := range changes["changes"].([]any) {
		m := c.(map[string]any)
		log = append(log, fmt.Sprint(m["who"], " ", m["from"], " ", m["action"], " ", m["what"], " ", m["key"], " ", m["answer"]))
	}
	assert.Equal(t, []string{
		"local 127.0.0.1 cancel order-42/timeout order-42 not_found",
		"local 127.0.0.1 cancel order-42/timeout order-42 cancelled",
		"local 127.0.0.1 publish-now order-42/timeout order-42 rescheduled",
		"local 127.0.0.1 reschedule order-42/timeout order-42 rescheduled",
		"local 127.0.0.1 read body order-42/timeout order-42 shown",
	}, log)
	assert.Contains(t, s.log.String(), "action=cancel what=order-42/timeout")
	assert.NotContains(t, s.log.String()+string(s.call("GET", "/audit", nil).body), "secret payload")
}

// TestLateAndSpread travel with the message, and spread is the same every time.
func TestLateAndSpread(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	const at = "2031-01-01T00:00:00.000Z"
	begin, err := time.Parse(time.RFC3339, at)
	require.NoError(t, err)
	want := begin.Add(message.Spread("k", "a", time.Hour)).Format(message.TimeFormat)
	require.NotEqual(t, at, want)
	body := map[string]any{"id": "a", "key": "k", "topic": "t", "at": at, "spread": "1h", "late": map[string]any{"after": "90m", "then": "drop"}}
	created := s.call("POST", "/queues/QUEUE/messages", body).is(http.StatusCreated)
	assert.Equal(t, want, created["due_at"])
	got := s.call("GET", "/queues/QUEUE/messages/a?key=k", nil).is(http.StatusOK)
	assert.Equal(t, map[string]any{"delay-late": "drop 1h30m0s"}, got["headers"])
	s.call("POST", "/queues/QUEUE/messages/a:reschedule?key=k", map[string]any{"in": "1m"}).is(http.StatusOK)
	s.call("POST", "/queues/QUEUE/messages/a:reschedule?key=k", map[string]any{"at": at, "spread": "1h"}).is(http.StatusOK)
	assert.Equal(t, want, s.call("GET", "/queues/QUEUE/messages/a?key=k", nil).is(http.StatusOK)["due_at"])

	for field, wrong := range map[string]map[string]any{
		"spread": {"spread": "soon"}, "late.after": {"late": map[string]any{"after": "soon", "then": "drop"}},
		"late.then": {"late": map[string]any{"then": "burn"}},
	} {
		wrong["topic"], wrong["in"] = "t", "1h"
		assert.Equal(t, field, s.call("POST", "/queues/QUEUE/messages", wrong).refused(http.StatusBadRequest, "invalid"))
	}
	for _, late := range []map[string]any{{"then": "burn"}, {"then": "drop"}, {"after": "1h"}} {
		s.call("POST", "/queues/QUEUE/messages", map[string]any{"topic": "t", "in": "1h", "late": late}).refused(http.StatusBadRequest, "invalid")
	}
}

func TestConflicts(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	s.schedule("a")
	body := map[string]any{"id": "a", "topic": "t", "body": "2", "in": "2h"}
	put := func(conflict string) answer {
		body["conflict"] = conflict
		return s.call("POST", "/queues/QUEUE/messages", body)
	}
	put("reject").refused(http.StatusConflict, "duplicate")
	assert.Equal(t, "existing", put("keep").is(http.StatusCreated)["status"])
	assert.Equal(t, "replaced", put("replace").is(http.StatusCreated)["status"])
	assert.Equal(t, "conflict", put("whatever").refused(http.StatusBadRequest, "invalid"))
	assert.Equal(t, "2", s.call("GET", "/queues/QUEUE/messages/a?body=true", nil).is(http.StatusOK)["body"])
}

// TestBatch: a result an item, by index; one that is bad does not fail the others.
func TestBatch(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	s.schedule("taken")
	out := s.call("POST", "/queues/QUEUE/messages:batch", map[string]any{"messages": []map[string]any{
		{"id": "a", "topic": "t", "in": "1h"},
		{"id": "taken", "topic": "t", "in": "1h"},
		{"id": "b", "topic": "", "in": "1h"},
		{"id": "taken", "topic": "t", "in": "3h", "conflict": "replace"},
		{"id": "c", "topic": "t"},
		{"id": "d", "topic": "t", "in": "1h", "body_base64": "/w=="},
		{"id": "e", "topic": "t", "in": "1h", "body_base64": "%"},
	}}).is(http.StatusOK)
	var got []string
	for _, r := range out["results"].([]any) {
		m := r.(map[string]any)
		line := text(m["id"]) + " " + text(m["status"])
		if p, ok := m["error"].(map[string]any); ok {
			line = text(m["id"]) + " " + text(p["code"]) + " " + text(p["field"])
		}
		got = append(got, line)
	}
	assert.Equal(t, "a created", got[0])
	assert.Contains(t, []string{"taken duplicate <nil>"}, got[1])
	assert.Equal(t, []string{"b invalid topic", "taken replaced", "c invalid in", "d created", "e invalid body_base64"}, got[2:])
	assert.Equal(t, "/w==", s.call("GET", "/queues/QUEUE/messages/d?body=1", nil).is(http.StatusOK)["body_base64"])
	s.call("POST", "/queues/QUEUE/messages:batch", `{"messages": []}`).refused(http.StatusBadRequest, "invalid")
}

// TestInvalid names the field, and changes nothing.
func TestInvalid(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	const path = "/queues/QUEUE/messages"
	for body, field := range map[string]string{
		`{"topic": "t", "in": "1h", "tpoic": "x"}`: "tpoic",
		`{"in": "1h"}`:              "topic",
		`{"topic": 7, "in": "1h"}`:  "topic",
		`{"topic": "", "in": "1h"}`: "topic",
		`{"topic": "t"}`:            "in",
		`{"topic": "t", "in": "1h", "at": "2031-01-01T00:00:00Z"}`:                   "in",
		`{"topic": "t", "in": "soon"}`:                                               "in",
		`{"topic": "t", "at": "soon"}`:                                               "at",
		`{"topic": "t", "in": "4000d"}`:                                              "in",
		`{"topic": "t", "in": "1h", "id": " a"}`:                                     "id",
		`{"topic": "t", "in": "1h", "key": "` + strings.Repeat("k", 256) + `"}`:      "key",
		`{"topic": "t", "in": "1h", "headers": {"delay-id": "x"}}`:                   "headers",
		`{"topic": "t", "in": "1h", "tags": ["a b"]}`:                                "tags",
		`{"topic": "t", "in": "1h", "body": "x", "body_base64": "eA=="}`:             "body_base64",
		`{"topic": "t", "in": "1h", "body": "` + "\xff" + `"}`:                       "body",
		`{"topic": "t", "in": "1h", "body": "` + strings.Repeat("b", 961<<10) + `"}`: "body",
		`[]`: "", `{`: "", ``: "", `null`: "",
	} {
		shown := body[:min(80, len(body))]
		assert.Equal(t, field, s.call("POST", path, body).refused(http.StatusBadRequest, "invalid"), "%s", shown)
	}
	for query, field := range map[string]string{
		"stat=dead": "stat", "state=lost": "state", "limit=0": "limit", "limit=1001": "limit", "limit=x": "limit",
		"due_from=now": "due_from", "cursor=%25": "",
	} {
		assert.Equal(t, field, s.call("GET", path+"?"+query, nil).refused(http.StatusBadRequest, "invalid"), query)
	}
	s.call("POST", path, "x=y", "Content-Type", "application/x-www-form-urlencoded").refused(http.StatusUnsupportedMediaType, "invalid")
	s.call("POST", path, `{"topic": "t", "in": "1h", "body": "`+strings.Repeat("b", 25<<20)+`"}`).refused(http.StatusRequestEntityTooLarge, "invalid")
	s.call("GET", "/queues/nowhere/messages", nil).refused(http.StatusNotFound, "not_found")
	s.call("GET", "/nothing", nil).refused(http.StatusNotFound, "not_found")
	s.call("POST", path+"/a:explode", nil).refused(http.StatusMethodNotAllowed, "method_not_allowed")
	s.call("POST", "/queues/QUEUE:explode", nil).refused(http.StatusNotFound, "not_found")
	for _, unclean := range []string{"/..", "/a/../b", "/a//b", "/."} {
		s.call("DELETE", path+unclean, nil).refused(http.StatusNotFound, "not_found")
	}
	assert.Equal(t, "id", s.call("GET", path+"/", nil).refused(http.StatusBadRequest, "invalid"))
	assert.Equal(t, "key", s.call("GET", path+"/a?key=%1F", nil).refused(http.StatusBadRequest, "invalid"))
	s.call("PUT", path, nil).refused(http.StatusMethodNotAllowed, "method_not_allowed")
	assert.Empty(t, s.call("GET", path, nil).is(http.StatusOK)["messages"])
}

// TestList: pages of a filter, in due order, each message once.
func TestList(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	for i := range 25 {
		s.schedule(fmt.Sprintf("m-%02d", i), "in", fmt.Sprintf("%dm", i+60), "topic", []string{"even", "odd"}[i%2])
	}
	var ids []string
	cursor := ""
	for {
		page := s.call("GET", "/queues/QUEUE/messages?topic=odd&limit=5&cursor="+url.QueryEscape(cursor), nil).is(http.StatusOK)
		for _, m := range page["messages"].([]any) {
			ids = append(ids, text(m.(map[string]any)["id"]))
		}
		if cursor = text(page["next_cursor"]); cursor == "" {
			break
		}
	}
	assert.Equal(t, strings.Fields("m-01 m-03 m-05 m-07 m-09 m-11 m-13 m-15 m-17 m-19 m-21 m-23"), ids)
	from, to := time.Now().Add(65*time.Minute-30*time.Second), time.Now().Add(67*time.Minute-30*time.Second)
	page := s.call("GET", "/queues/QUEUE/messages?due_from="+url.QueryEscape(from.Format(time.RFC3339))+"&due_to="+url.QueryEscape(to.Format(time.RFC3339)), nil).is(http.StatusOK)
	assert.Len(t, page["messages"], 2)
	assert.Len(t, s.call("GET", "/queues/QUEUE/messages?id_prefix=m-1", nil).is(http.StatusOK)["messages"], 10)
	assert.Empty(t, s.call("GET", "/queues/QUEUE/messages?state=dead", nil).is(http.StatusOK)["messages"])
}

// TestSameAsSDK asks the SDK and the API the same, and compares what they say.
func TestSameAsSDK(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	s.schedule("taken")
	codes := map[string]error{
		"invalid": delay.ErrInvalid, "duplicate": delay.ErrDuplicate, "not_found": delay.ErrNotFound, "too_late": delay.ErrTooLate,
	}
	long := strings.Repeat("x", 300)
	for _, m := range []delay.Message{
		{ID: "taken", Topic: "t"},
		{ID: "x"},
		{ID: long, Topic: "t"},
		{ID: "a\tb", Topic: "t"},
		{ID: "x", Key: " k", Topic: "t"},
		{ID: "x", Topic: long},
		{ID: "x", Topic: "t", Headers: map[string]string{"a b": "c"}},
		{ID: "x", Topic: "t", Headers: map[string]string{"a": "b\n"}},
		{ID: "x", Topic: "t", Body: make([]byte, 1<<20)},
		{ID: "ok", Topic: "t"},
		{ID: "ü/ö:é?#%", Key: "k/ 1", Topic: "t"},
		{ID: "..", Topic: "t"},
		{ID: "a//b:reschedule", Topic: "t"},
	} {
		_, want := s.client.Schedule(t.Context(), m, delay.After(time.Hour))
		got := s.call("POST", "/queues/QUEUE/messages", map[string]any{
			"id": m.ID, "key": m.Key, "topic": m.Topic, "headers": m.Headers, "body_base64": base64.StdEncoding.EncodeToString(m.Body), "in": "1h",
		})
		if want == nil { // The SDK was first.
			got.refused(http.StatusConflict, "duplicate")
			info, err := s.client.Get(t.Context(), delay.Ref{ID: m.ID, Key: m.Key})
			require.NoError(t, err)
			path := "/queues/QUEUE/messages/" + strings.ReplaceAll(url.PathEscape(m.ID), ".", "%2E")
			query := "?key=" + url.QueryEscape(m.Key)
			found := s.call("GET", path+query, nil).is(http.StatusOK)
			assert.Equal(t, info.DueAt.UTC().Format("2006-01-02T15:04:05.000Z"), found["due_at"])
			assert.Equal(t, string(info.State), found["state"])
			s.call("POST", path+":reschedule"+query, map[string]any{"in": "2d"}).is(http.StatusOK)
			s.call("DELETE", path+query, nil).is(http.StatusOK)
			require.ErrorIs(t, s.client.Cancel(t.Context(), delay.Ref{ID: m.ID, Key: m.Key}), delay.ErrNotFound)
			continue
		}
		p := got.is(got.status)
		require.ErrorIs(t, want, codes[text(p["code"])], "%.40q", m.ID)
		if field := text(p["field"]); field != "<nil>" {
			assert.Contains(t, want.Error(), strings.TrimSuffix(field, "s"))
		}
	}
}

// TestInFlight is too late to cancel and to move.
func TestInFlight(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	s.schedule("a", "at", longAgo)
	s.claim()
	assert.Equal(t, "in_flight", s.call("GET", "/queues/QUEUE/messages/a", nil).is(http.StatusOK)["state"])
	s.call("DELETE", "/queues/QUEUE/messages/a", nil).refused(http.StatusConflict, "too_late")
	s.call("POST", "/queues/QUEUE/messages/a:reschedule", map[string]any{"in": "1h"}).refused(http.StatusConflict, "too_late")
	list := s.call("GET", "/queues/QUEUE/messages?state=in_flight", nil).is(http.StatusOK)
	assert.Len(t, list["messages"], 1)
}

// TestNothingIsReplacedInSilence: what the decoder of JSON would change or leave out is
// refused.
func TestNothingIsReplacedInSilence(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	for body, field := range map[string]string{
		`{"id": "b", "topic": "t", "in": "1h", "in": "2h"}`:                    "in",
		`{"id": "b", "topic": "t", "in": "1h", "headers": {"a": "", "a": ""}}`: "headers.a",
		`{"id": "\ud800", "topic": "t", "in": "1h"}`:                           "id",
		`{"id": "b", "topic": "t", "in": "1h", "body": "\udc00"}`:              "body",
		`{"id": "b", "topic": "t", "in": "1h", "body": "` + "\xff" + `"}`:      "body",
		`{"id": "b", "topic": "t", "in": "1h"} {}`:                             "",
		`{"id": "b"`: "",
	} {
		assert.Equal(t, field, s.call("POST", "/queues/QUEUE/messages", body).refused(http.StatusBadRequest, "invalid"), body)
	}
	assert.Equal(t, "topic", s.call("POST", "/queues/QUEUE:pause", `{"topic": "a", "topic": "b"}`).refused(http.StatusBadRequest, "invalid"))
	s.call("POST", "/queues/QUEUE:pause", "{\"topic\": \"\xff\"}").refused(http.StatusBadRequest, "invalid")
	paused, err := inspect.NewAdmin(s.queue).Paused(t.Context())
	require.NoError(t, err)
	assert.Empty(t, paused)
	s.call("GET", "/queues/QUEUE/messages/b", nil).refused(http.StatusNotFound, "not_found")
}

// TestQueryIsWhole: what would be left out of a query is refused, since another message
// would be meant without it.
func TestQueryIsWhole(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	s.schedule("a")
	for query, field := range map[string]string{"key=b&key=": "key", "key=%zz": "query", "key=b;c": "query"} {
		assert.Equal(t, field, s.call("DELETE", "/queues/QUEUE/messages/a?"+query, nil).refused(http.StatusBadRequest, "invalid"), query)
	}
	s.call("GET", "/queues/QUEUE/messages/a", nil).is(http.StatusOK)
}

// TestDots: a browser can ask for the ids that it would take for a way up.
func TestDots(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	for query, id := range map[string]string{"dots=1": ".", "dots=2": ".."} {
		s.schedule(id)
		assert.Equal(t, id, s.call("GET", "/queues/QUEUE/messages/-?key=&"+query, nil).is(http.StatusOK)["id"])
		s.call("DELETE", "/queues/QUEUE/messages/-?"+query, nil).is(http.StatusOK)
		s.call("GET", "/queues/QUEUE/messages/-?"+query, nil).refused(http.StatusNotFound, "not_found")
	}
	assert.Equal(t, "dots", s.call("GET", "/queues/QUEUE/messages/-?dots=3", nil).refused(http.StatusBadRequest, "invalid"))
	s.schedule("-")
	assert.Equal(t, "-", s.call("GET", "/queues/QUEUE/messages/-", nil).is(http.StatusOK)["id"])
}
