package api_test

import (
	"bufio"
	"context"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/api/access/accesstest"
)

// issued is a scene with an issuer, beside tokens.
type issued struct {
	*scene
	*accesstest.Signer

	settings access.Settings
}

func newIssued(t *testing.T, tokens string, callers ...string) *issued {
	t.Helper()
	signer := accesstest.NewSigner(t, "https://login.example/main", "k1")
	file := filepath.Join(t.TempDir(), "keys.json")
	signer.Publish(t, file)
	settings := access.Settings{Issuers: map[string]access.Issuer{"corp": {
		URL: signer.Issuer, Audiences: []string{accesstest.Audience}, JWKSFile: file, Leeway: time.Second, Name: "sub", Callers: callers,
	}}}
	s := &issued{newScene(t, scenery{tokens: tokens, access: settings}), signer, settings}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.guard.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return s
}

// as is the header of a caller.
func (s *issued) as(subject string, groups ...string) []string {
	s.t.Helper()
	return bearer(s.Token(s.t, subject, map[string]any{"groups": groups}))
}

// TestJWTCallers: a JWT gives the rights of its line, the audit has name and issuer, and nothing has the token.
func TestJWTCallers(t *testing.T) {
	t.Parallel()
	s := newIssued(t, threeRoles, "groups=sre operator", "groups=pay producer topics=pay.due", "groups=look viewer queues=other")
	put := func(id, topic string, headers []string) answer {
		return s.call("POST", "/queues/QUEUE/messages", map[string]any{"id": id, "topic": topic, "in": "1h"}, headers...)
	}
	put("a", "pay.due", s.as("shop", "pay")).is(http.StatusCreated)
	put("b", "order.due", s.as("shop", "pay")).refused(http.StatusForbidden, "forbidden")
	put("b", "order.due", bearer(operatorToken)).is(http.StatusCreated)
	s.call("DELETE", "/queues/QUEUE/messages/b", nil, s.as("shop", "pay")...).refused(http.StatusForbidden, "forbidden")
	s.call("GET", "/queues/QUEUE", nil, s.as("guest", "look")...).refused(http.StatusForbidden, "forbidden")
	s.call("POST", "/queues/QUEUE:pause", nil, s.as("shop", "pay")...).refused(http.StatusForbidden, "forbidden")
	s.call("POST", "/queues/QUEUE:pause", nil, s.as("ann", "sre")...).is(http.StatusOK)
	s.call("GET", "/queues", nil, s.as("eve", "nobody")...).refused(http.StatusForbidden, "forbidden")
	s.call("GET", "/queues", nil, bearer(s.Token(t, "ann", map[string]any{"exp": 1}))...).refused(http.StatusUnauthorized, "unauthorized")
	caller := s.call("GET", "/queues", nil, s.as("ann", "sre")...).is(http.StatusOK)["caller"].(map[string]any)
	assert.Equal(t, map[string]any{"name": "corp/ann", "role": "operator", "may_change": true, "by_token": true}, caller)

	log := strings.Join(s.changes(bearer(operatorToken)...), "\n")
	assert.Contains(t, log, "corp/ann pause")
	assert.Contains(t, log, "corp/eve overview  forbidden", "she is known, and may nothing")
	assert.Contains(t, log, "corp/shop schedule  forbidden")
	assert.NotContains(t, s.log.String(), "eyJ")
	assert.Equal(t, 1, s.refusals.of("unauthorized"))
}

// TestIdempotencyKeysOfJWTs: a key belongs to issuer and subject: it outlives the token, and is nobody else's.
func TestIdempotencyKeysOfJWTs(t *testing.T) {
	t.Parallel()
	s := newIssued(t, threeRoles, "sub=* producer name=shop")
	put := func(headers []string) answer {
		return s.call("POST", "/queues/QUEUE/messages", map[string]any{"topic": "t", "in": "1h"}, append(headers, "Idempotency-Key", "k")...)
	}
	first := put(s.as("ann", "a")).is(http.StatusCreated)
	again := put(s.as("ann", "b"))
	assert.Equal(t, first["id"], again.is(http.StatusCreated)["id"], "another token")
	assert.Equal(t, "true", again.header.Get("Idempotent-Replayed"))
	assert.NotEqual(t, first["id"], put(s.as("bob")).is(http.StatusCreated)["id"], "another caller of that name")
	assert.NotEqual(t, first["id"], put(bearer(producerToken)).is(http.StatusCreated)["id"])
}

// TestIssuerAway: while an issuer's keys are not there, each call with its tokens is 503 and unavailable, as the document says.
func TestIssuerAway(t *testing.T) {
	t.Parallel()
	s := newIssued(t, threeRoles, "sub=* operator")
	away := accesstest.NewSigner(t, "https://127.0.0.1:1", "k1")
	settings := access.Settings{Issuers: map[string]access.Issuer{"away": {URL: away.Issuer, Audiences: []string{accesstest.Audience}, Name: "sub", Callers: []string{"sub=* operator"}}}}
	require.NoError(t, s.guard.Change(settings))
	for id, call := range s.operations() {
		path := strings.NewReplacer("{queue}", "QUEUE", "{id}", "none", "{job}", "none", "{name}", "none").Replace(call[1])
		answer := s.call(call[0], path, nil, bearer(away.Token(t, "ann", nil))...)
		answer.refused(http.StatusServiceUnavailable, "unavailable")
		assert.Equal(t, "1", answer.header.Get("Retry-After"), id)
	}
	s.call("GET", "/queues", nil, bearer(operatorToken)...).is(http.StatusOK)
}

// TestSharesOfJWTs: a caller has one share of the instance, however many tokens it has.
func TestSharesOfJWTs(t *testing.T) {
	t.Parallel()
	s := newIssued(t, "", "sub=* viewer")
	listen := func(header []string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL+"/api/v1/events", http.NoBody)
		require.NoError(t, err)
		request.Header.Set(header[0], header[1])
		response, err := s.server.Client().Do(request)
		require.NoError(t, err)
		t.Cleanup(func() { _ = response.Body.Close() })
		return response.StatusCode
	}
	for i := range 16 {
		require.Equal(t, http.StatusOK, listen(s.as("ann", strconv.Itoa(i))))
	}
	assert.Equal(t, http.StatusTooManyRequests, listen(s.as("ann", "one more")))
	assert.Equal(t, http.StatusOK, listen(s.as("bob")))
}

// TestStreamOfWhoMayNoLonger: a stream ends when its caller's rights change, its token ends, or the token of the file goes.
func TestStreamOfWhoMayNoLonger(t *testing.T) {
	t.Parallel()
	s := newIssued(t, "", "sub=ann viewer", "sub=bob viewer")
	open := func(header []string) (ended chan struct{}) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL+"/api/v1/events", http.NoBody)
		require.NoError(t, err)
		request.Header.Set(header[0], header[1])
		response, err := s.server.Client().Do(request)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode)
		lines := bufio.NewReader(response.Body)
		_, err = lines.ReadString('\n')
		require.NoError(t, err)
		ended = make(chan struct{})
		go func() {
			defer close(ended)
			defer func() { _ = response.Body.Close() }()
			for err == nil {
				_, err = lines.ReadString('\n')
			}
		}()
		return ended
	}
	goesOn := func(stream chan struct{}) {
		select {
		case <-stream:
			t.Error("the stream of who may has ended")
		default:
		}
	}
	ann, bob := open(s.as("ann")), open(s.as("bob"))
	brief := open(bearer(s.Token(t, "bob", map[string]any{"exp": time.Now().Add(time.Second).Unix()})))
	<-brief
	goesOn(ann)
	settings := s.settings
	corp := settings.Issuers["corp"]
	corp.Callers = []string{"sub=ann viewer topics=a", "sub=bob viewer"}
	require.NoError(t, s.guard.Change(access.Settings{Issuers: map[string]access.Issuer{"corp": corp}}))
	<-ann
	goesOn(bob)
	s.call("GET", "/queues", nil, s.as("ann")...).is(http.StatusOK)
}
