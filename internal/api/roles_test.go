package api_test

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const threeRoles = `
# who may what
` + producerToken + ` producer name=shop
` + viewerToken + ` viewer
` + operatorToken + ` operator name=ann
`

// mayCall says who may make which call.
var mayCall = map[string]string{
	"schedule": "producer operator", "scheduleBatch": "producer operator", "cancel": "producer operator", "cancelTagged": "producer operator", "reschedule": "producer operator",
	"publishNow": "producer operator", "pause": "operator", "resume": "operator",
	"cancelAll": "operator", "rescheduleAll": "operator", "redriveAll": "operator", "purgeAll": "operator", "stopJob": "operator",
	"get":          "producer viewer operator",
	"setRecurring": "producer operator", "deleteRecurring": "producer operator", "pauseRecurring": "producer operator", "resumeRecurring": "producer operator",
	"recurring": "producer viewer operator", "recurrings": "producer viewer operator",
	"list": "viewer operator", "overview": "viewer operator", "queue": "viewer operator", "sinks": "viewer operator", "usage": "viewer operator", "shards": "viewer operator",
	"inlets": "viewer operator", "instances": "viewer operator", "forecast": "viewer operator", "demand": "viewer operator", "audit": "viewer operator", "events": "viewer operator",
	"declarations": "viewer operator", "declaration": "viewer operator", "declare": "operator", "deleteDeclaration": "operator",
	"logLevel": "viewer operator", "setLogLevel": "operator",
	"recent": "viewer operator", "acknowledgeLosses": "operator",
	"jobs": "viewer operator", "job": "viewer operator",
}

// operations are those of the document that the API serves.
func (s *scene) operations() map[string][2]string {
	s.t.Helper()
	var spec struct {
		OpenAPI string
		Paths   map[string]map[string]struct{ OperationID string }
	}
	document := s.call("GET", "/openapi.json", nil)
	require.Equal(s.t, http.StatusOK, document.status)
	require.NoError(s.t, json.Unmarshal(document.body, &spec))
	require.Equal(s.t, "3.1.0", spec.OpenAPI)
	calls := map[string][2]string{}
	for path, methods := range spec.Paths {
		for method, operation := range methods {
			calls[operation.OperationID] = [2]string{strings.ToUpper(method), path}
		}
	}
	return calls
}

// TestRoles makes every call that there is with every role: those that may not are
// refused with 403, those without a token with 401, and the others are let in.
func TestRoles(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{tokens: threeRoles})
	for id, call := range s.operations() {
		allowed, known := mayCall[id]
		require.True(t, known, "%s: say who may call it", id)
		path := strings.NewReplacer("{queue}", "QUEUE", "{id}", "none", "{job}", "none", "{name}", "none").Replace(call[1])
		var body any
		if call[0] == http.MethodPost {
			body = `{"wrong": true}`
		}
		s.call(call[0], path, body).refused(http.StatusUnauthorized, "unauthorized")
		s.call(call[0], path, body, bearer("somebody-elses-token")...).refused(http.StatusUnauthorized, "unauthorized")
		s.call(call[0], path, body, "Authorization", "Basic "+operatorToken).refused(http.StatusUnauthorized, "unauthorized")
		for role, token := range map[string]string{"producer": producerToken, "viewer": viewerToken, "operator": operatorToken} {
			if !strings.Contains(allowed, role) {
				s.call(call[0], path, body, bearer(token)...).refused(http.StatusForbidden, "forbidden")
				continue
			}
			if id == "events" {
				continue // It does not end by itself.
			}
			status := s.call(call[0], path, body, bearer(token)...).status
			assert.NotContains(t, []int{http.StatusUnauthorized, http.StatusForbidden}, status, "%s as %s", id, role)
		}
	}
	s.call("GET", "/audit", nil, bearer(viewerToken)...).is(http.StatusOK)
	assert.NotContains(t, s.log.String(), "-token-1")
}

// TestLimitedTokens: a token may be for some queues and topics only.
func TestLimitedTokens(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{tokens: `
elsewhere-1 operator queues=other
pay-only-token producer topics=pay.due,pay.retry
pay-operator-token operator topics=pay.due
pay-viewer-token viewer queues=QUEUE topics=pay.due
` + operatorToken + ` operator
slow-token-1 viewer rate=2
`})
	s.call("GET", "/queues/QUEUE", nil, bearer("elsewhere-1")...).refused(http.StatusForbidden, "forbidden")
	s.call("GET", "/queues/missing", nil, bearer("elsewhere-1")...).refused(http.StatusForbidden, "forbidden")
	s.call("GET", "/audit?queue=QUEUE", nil, bearer("elsewhere-1")...).refused(http.StatusForbidden, "forbidden")
	assert.Empty(t, s.call("GET", "/queues", nil, bearer("elsewhere-1")...).is(http.StatusOK)["queues"])

	pay := bearer("pay-only-token")
	put := func(id, topic, conflict string, headers []string) answer {
		return s.call("POST", "/queues/QUEUE/messages", map[string]any{"id": id, "topic": topic, "in": "1h", "conflict": conflict}, headers...)
	}
	put("p", "pay.due", "reject", pay).is(http.StatusCreated)
	put("o", "order.due", "reject", pay).refused(http.StatusForbidden, "forbidden")
	put("o", "order.due", "reject", bearer(operatorToken)).is(http.StatusCreated)
	put("o", "pay.due", "replace", pay).refused(http.StatusForbidden, "forbidden")
	for _, method := range []string{"GET", "DELETE"} {
		s.call(method, "/queues/QUEUE/messages/o", nil, pay...).refused(http.StatusForbidden, "forbidden")
		s.call(method, "/queues/QUEUE/messages/p", nil, pay...).is(http.StatusOK)
	}
	s.call("POST", "/queues/QUEUE/messages", map[string]any{"id": "k", "key": "secret", "topic": "order.due", "in": "1h"}, bearer(operatorToken)...).is(http.StatusCreated)
	for _, method := range []string{"GET", "DELETE"} { // Under which key another's message is, is not told.
		s.call(method, "/queues/QUEUE/messages/k", nil, pay...).refused(http.StatusNotFound, "not_found")
	}
	s.call("POST", "/queues/QUEUE/messages/o:reschedule", map[string]any{"in": "1h"}, pay...).refused(http.StatusForbidden, "forbidden")

	some := bearer("pay-operator-token")
	s.call("POST", "/queues/QUEUE:pause", nil, some...).refused(http.StatusForbidden, "forbidden")
	s.call("POST", "/queues/QUEUE:pause", `{"topic": "order.due"}`, some...).refused(http.StatusForbidden, "forbidden")
	s.call("POST", "/queues/QUEUE:pause", `{"topic": "pay.due"}`, some...).is(http.StatusOK)

	viewer := bearer("pay-viewer-token")
	put("p", "pay.due", "reject", pay).is(http.StatusCreated)
	listed := s.call("GET", "/queues/QUEUE/messages", nil, viewer...).is(http.StatusOK)["messages"].([]any)
	require.Len(t, listed, 1, "what it may see, and nothing else")
	assert.Equal(t, "p", listed[0].(map[string]any)["id"])
	assert.Equal(t, []any{"pay.due"}, s.call("GET", "/queues", nil, viewer...).is(http.StatusOK)["caller"].(map[string]any)["topics"])
	s.call("GET", "/queues/QUEUE/messages?topic=order.due", nil, viewer...).refused(http.StatusForbidden, "forbidden")
	s.call("GET", "/queues/QUEUE/messages?topic=pay.due", nil, viewer...).is(http.StatusOK)
	s.call("GET", "/audit", nil, viewer...).refused(http.StatusForbidden, "forbidden")
	assert.Equal(t, "order.due", s.call("GET", "/queues/QUEUE/messages/o", nil, bearer(operatorToken)...).is(http.StatusOK)["topic"], "nobody has changed it")

	limited := 0
	for range 20 {
		if s.call("GET", "/queues", nil, bearer("slow-token-1")...).status == http.StatusTooManyRequests {
			limited++
		}
	}
	assert.Positive(t, limited)
}

// TestWithoutTokens: the host itself may do anything; a proxy on it, a page of another
// site and a name that points here may not.
func TestWithoutTokens(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	put := func(headers ...string) answer {
		return s.call("POST", "/queues/QUEUE/messages", map[string]any{"topic": "t", "in": "1h"}, headers...)
	}
	put().is(http.StatusCreated)
	put("Host", "localhost:8080").is(http.StatusCreated)
	put("Host", "[::1]").is(http.StatusCreated)
	put("Host", "evil.example:8080").refused(http.StatusForbidden, "forbidden")
	put("Host", "localhost.evil.example").refused(http.StatusForbidden, "forbidden")
	s.call("GET", "/queues", nil, "Host", "evil.example").refused(http.StatusForbidden, "forbidden")
	put("X-Forwarded-For", "10.0.0.7").refused(http.StatusForbidden, "forbidden")
	put("Forwarded", "for=10.0.0.7").refused(http.StatusForbidden, "forbidden")
	for _, header := range []string{
		"Via", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Server", "X-Forwarded-Prefix", "X-Forwarded-User", "X-Real-IP",
		"X-Client-IP", "X-Cluster-Client-IP", "True-Client-IP", "CF-Connecting-IP", "CF-Ray", "Fly-Client-IP", "Fastly-Client-IP", "CDN-Loop",
		"X-Original-Forwarded-For", "X-Original-URL", "X-Envoy-External-Address", "X-Azure-ClientIP", "X-Amzn-Trace-Id", "X-Appengine-User-IP",
		"Tailscale-User-Login", "X-Auth-Request-User", "Remote-User",
	} {
		for _, value := range []string{"127.0.0.1", ""} {
			put(header, value).refused(http.StatusForbidden, "forbidden")
			s.call("POST", "/queues/QUEUE:pause", nil, header, value).refused(http.StatusForbidden, "forbidden")
			s.call("GET", "/queues", nil, header, value).is(http.StatusOK)
		}
	}
	for _, header := range []string{"User-Agent", "X-Request-Id", "Traceparent", "Accept-Encoding", "Proxy-Connection"} {
		put(header, "1").is(http.StatusCreated)
	}
	s.call("GET", "/queues", nil, "X-Forwarded-For", "10.0.0.7").is(http.StatusOK)
	put("Sec-Fetch-Site", "cross-site").refused(http.StatusForbidden, "forbidden")
	put("Sec-Fetch-Site", "same-site").refused(http.StatusForbidden, "forbidden")
	put("Sec-Fetch-Site", "same-origin").is(http.StatusCreated)
	put("Origin", "http://evil.example").refused(http.StatusForbidden, "forbidden")
	put("Origin", s.server.URL).is(http.StatusCreated)
	put("Content-Type", "text/plain").refused(http.StatusUnsupportedMediaType, "invalid")
	s.call("DELETE", "/queues/QUEUE/messages/x", nil, "Origin", "http://evil.example").refused(http.StatusForbidden, "forbidden")
	assert.Len(t, s.call("GET", "/queues/QUEUE/messages", nil).is(http.StatusOK)["messages"], 10)
}

// TestReadOnly: nobody changes anything, everybody sees it.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{tokens: threeRoles, readOnly: true})
	for id, call := range s.operations() {
		if call[0] != http.MethodGet {
			path := strings.NewReplacer("{queue}", "QUEUE", "{id}", "none").Replace(call[1])
			assert.Empty(t, s.call(call[0], path, `{}`, bearer(operatorToken)...).refused(http.StatusForbidden, "read_only"), id)
		}
	}
	s.call("GET", "/queues/QUEUE", nil, bearer(operatorToken)...).is(http.StatusOK)
}

// TestRotation: the file is read again; a bad one changes nothing, and the log says so.
func TestRotation(t *testing.T) {
	t.Parallel()
	setting := scenery{tokens: threeRoles}
	s := newScene(t, setting)
	status := func(token string) int { return s.call("GET", "/queues", nil, bearer(token)...).status }
	until := func(token string, want int) {
		t.Helper()
		require.Eventually(t, func() bool { return status(token) == want }, patience, tick)
	}
	require.Equal(t, http.StatusOK, status(viewerToken))
	require.NoError(t, os.WriteFile(s.tokens, []byte("new-viewer-token viewer\n"), 0o600))
	until("new-viewer-token", http.StatusOK)
	require.Equal(t, http.StatusUnauthorized, status(viewerToken), "the old one is void")
	require.NoError(t, os.WriteFile(s.tokens, []byte("hidden-token boss\n"), 0o600))
	require.Eventually(t, func() bool {
		return status("new-viewer-token") == http.StatusOK && strings.Contains(s.log.String(), "line 1: must have a role")
	}, patience, tick)
	require.NoError(t, os.Remove(s.tokens))
	require.Eventually(t, func() bool {
		return status("new-viewer-token") == http.StatusOK && strings.Contains(s.log.String(), "cannot be read again")
	}, patience, tick)
	assert.NotContains(t, s.log.String(), "hidden-token")
}
