package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const bills = "/declarations/bills"

// TestDeclarations: a queue is declared, shown, changed by who has seen it, and deleted; what was done is in the audit of the queue.
func TestDeclarations(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	assert.Empty(t, s.call("GET", "/declarations", nil).is(http.StatusOK)["declarations"])
	s.call("GET", bills, nil).refused(http.StatusNotFound, "not_found")

	made := s.call("PUT", bills, `{"sink": "events", "shards": 2}`, "If-None-Match", "*")
	created := made.is(http.StatusCreated)
	assert.Equal(t, []any{"created", "bills", "local"}, []any{created["status"], created["name"], created["by"]})
	shown := s.call("GET", bills, nil)
	assert.Equal(t, made.header.Get("ETag"), shown.header.Get("ETag"))
	assert.Equal(t, `"`+text(created["revision"])+`"`, made.header.Get("ETag"))
	declared := shown.is(http.StatusOK)
	assert.Equal(t, map[string]any{"sink": "events", "shards": 2.0}, declared["queue"])
	assert.Equal(t, false, declared["in_force"], "nothing takes it in this test")
	assert.Equal(t, []any{declared}, s.call("GET", "/declarations", nil).is(http.StatusOK)["declarations"])

	for _, headers := range [][]string{nil, {"If-None-Match", "*"}, {"If-Match", `"1"`}} {
		again := s.call("PUT", bills, `{"shards":2,"sink":"events"}`, headers...)
		assert.Equal(t, "unchanged", again.is(http.StatusOK)["status"], "the answer of the first call may have been lost")
		assert.Equal(t, made.header.Get("ETag"), again.header.Get("ETag"))
	}
	const other = `{"sink": "events", "shards": 3}`
	s.call("PUT", bills, other).refused(http.StatusPreconditionRequired, "precondition_required")
	s.call("PUT", bills, other, "If-None-Match", "*").refused(http.StatusPreconditionFailed, "precondition_failed")
	s.call("PUT", bills, other, "If-Match", `"1"`).refused(http.StatusPreconditionFailed, "precondition_failed")
	s.call("PUT", "/declarations/none", other, "If-Match", "*").refused(http.StatusPreconditionFailed, "precondition_failed")
	for header, value := range map[string]string{"If-Match": "1", "If-None-Match": `"1"`} {
		assert.Equal(t, header, s.call("PUT", bills, other, header, value).refused(http.StatusBadRequest, "invalid"))
	}
	changed := s.call("PUT", bills, other, "If-Match", made.header.Get("ETag"))
	assert.Equal(t, "changed", changed.is(http.StatusOK)["status"])
	s.call("PUT", bills, `{"sink": "events"}`, "If-Match", made.header.Get("ETag")).refused(http.StatusPreconditionFailed, "precondition_failed")

	s.call("DELETE", bills, nil).refused(http.StatusPreconditionRequired, "precondition_required")
	s.call("DELETE", bills, nil, "If-Match", made.header.Get("ETag")).refused(http.StatusPreconditionFailed, "precondition_failed")
	assert.Equal(t, map[string]any{"name": "bills", "status": "deleted", "kept": 0.0}, s.call("DELETE", bills, nil, "If-Match", "*").is(http.StatusOK))
	s.call("DELETE", bills, nil, "If-Match", "*").refused(http.StatusNotFound, "not_found")

	changes, err := s.declarations.Admin("bills").AuditLog(t.Context(), "", 100)
	require.NoError(t, err)
	answers := ""
	for _, c := range changes {
		answers = c.Action + " " + c.Answer + ", " + answers
	}
	for _, line := range []string{"declare queue created, declare queue precondition_required", "declare queue changed", "delete queue done"} {
		assert.Contains(t, answers, line)
	}
	assert.NotContains(t, answers, "unchanged")
}

// TestWrongDeclarations: what the configuration does not allow is refused, with the field.
func TestWrongDeclarations(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	for body, field := range map[string]string{
		`{}`:                                            "sink",
		`{"sink": "nowhere"}`:                           "sink",
		`{"sink": "events", "shards": 99}`:              "shards",
		`{"sink": "events", "shards": "x"}`:             "shards",
		`{"sink": "events", "shard": 1}`:                "shard",
		`{"sink": "events", "rate": {"topics": ["x"]}}`: "rate.topics",
		`{"sink": "${HOME}"}`:                           "sink",
		`{"sink": "events", "owner": "` + strings.Repeat("o", 201) + `"}`: "owner",
	} {
		assert.Equal(t, field, s.call("PUT", bills, body).refused(http.StatusBadRequest, "invalid"), body)
	}
	for _, body := range []string{`[]`, `"x"`, `{"sink": "events", "sink": "events"}`, `{`} {
		s.call("PUT", bills, body).refused(http.StatusBadRequest, "invalid")
	}
	assert.Equal(t, "name", s.call("PUT", "/declarations/A", `{"sink": "events"}`).refused(http.StatusBadRequest, "invalid"))
	s.call("PUT", "/declarations/QUEUE", `{"sink": "events"}`).refused(http.StatusConflict, "declared_elsewhere")
	for _, name := range []string{"a", "b", "c"} {
		s.call("PUT", "/declarations/"+name, `{"sink": "events"}`).is(http.StatusCreated)
	}
	s.call("PUT", "/declarations/d", `{"sink": "events"}`).refused(http.StatusConflict, "many_queues")
}

// TestDeleteWithMessages: a queue that has messages is deleted only by who says that they stay.
func TestDeleteWithMessages(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	s.schedule("waits")
	name := s.queue.Name()
	now, err := s.rdb.Time(t.Context()).Result()
	require.NoError(t, err)
	s.declare(name, `{"sink":"events"}`, now) // It is declared in the main file, too, in this test.
	assert.Contains(t, s.call("DELETE", "/declarations/QUEUE", nil, "If-Match", "*").is(http.StatusConflict)["detail"], "1 wait, 0 are in flight, 0 are dead")
	assert.EqualValues(t, 1, s.call("DELETE", "/declarations/QUEUE?keep_messages=true", nil, "If-Match", "*").is(http.StatusOK)["kept"])
}

// TestWhoMayDeclare: operators, for the queues that they may use; who may use certain topics may not, since a queue publishes to any.
func TestWhoMayDeclare(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{tokens: `
team-token-1 operator name=team queues=bills
topic-token-1 operator topics=pay.due
` + viewerToken + ` viewer
` + operatorToken + ` operator name=ann
`})
	const queue = `{"sink": "events"}`
	team := bearer("team-token-1")
	assert.Equal(t, "team", s.call("PUT", bills, queue, team...).is(http.StatusCreated)["by"])
	s.call("PUT", "/declarations/others", queue, bearer(operatorToken)...).is(http.StatusCreated)
	s.call("PUT", "/declarations/mine", queue, team...).refused(http.StatusForbidden, "forbidden")
	s.call("GET", "/declarations/others", nil, team...).refused(http.StatusForbidden, "forbidden")
	s.call("DELETE", "/declarations/others", nil, append(team, "If-Match", "*")...).refused(http.StatusForbidden, "forbidden")
	assert.Len(t, s.call("GET", "/declarations", nil, team...).is(http.StatusOK)["declarations"], 1)
	assert.Len(t, s.call("GET", "/declarations", nil, bearer(viewerToken)...).is(http.StatusOK)["declarations"], 2)
	s.call("PUT", bills, queue, bearer(viewerToken)...).refused(http.StatusForbidden, "forbidden")
	s.call("PUT", bills, queue, bearer("topic-token-1")...).refused(http.StatusForbidden, "forbidden")
	s.call("DELETE", bills, nil, append(bearer("topic-token-1"), "If-Match", "*")...).refused(http.StatusForbidden, "forbidden")
}

// TestNoSection: without the section of the configuration no queue is declared.
func TestNoSection(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	s.configured.Store(s.configure(""))
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		var body any
		if method == "PUT" {
			body = `{"sink": "events"}`
		}
		s.call(method, bills, body, "If-Match", "*").refused(http.StatusNotFound, "not_found")
	}
	s.call("GET", "/declarations", nil).refused(http.StatusNotFound, "not_found")
}

// TestDeclarationsWithoutRedis: what cannot be known is said, and not that there is nothing.
func TestDeclarationsWithoutRedis(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	require.NoError(t, s.rdb.Close())
	began := time.Now()
	s.call("GET", "/declarations", nil).refused(http.StatusServiceUnavailable, "unavailable")
	s.call("PUT", bills, `{"sink": "events"}`).refused(http.StatusServiceUnavailable, "unavailable")
	assert.Less(t, time.Since(began), patience)
}
