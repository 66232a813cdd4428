package api_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// level is what is logged, as a test sees it.
type level struct {
	current slog.Level
	last    time.Duration
}

func (l *level) Set(current slog.Level, last time.Duration) { l.current, l.last = current, last }

func (l *level) Get() (current, configured slog.Level, until time.Time) {
	if l.last > 0 {
		until = time.UnixMilli(0).Add(l.last)
	}
	return l.current, slog.LevelInfo, until
}

func TestLogLevel(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{tokens: threeRoles + "\nsome-queues-1 operator queues=QUEUE\n"})
	operator := bearer(operatorToken)
	set := func(body string, headers []string) answer { return s.call("PUT", "/log-level", body, headers...) }
	assert.Equal(t, map[string]any{"instance": "bridge-1", "level": "info", "configured": "info"},
		s.call("GET", "/log-level", nil, bearer(viewerToken)...).is(http.StatusOK))
	assert.Equal(t, "1970-01-01T00:10:00.000Z", set(`{"level": "debug", "for": "10m"}`, operator).is(http.StatusOK)["until"])
	assert.Equal(t, level{slog.LevelDebug, 10 * time.Minute}, *s.level)
	changes := s.call("GET", "/audit", nil, operator...).is(http.StatusOK)["changes"].([]any)
	require.Len(t, changes, 1)
	entry := changes[0].(map[string]any)
	assert.Equal(t, []any{"ann", "log-level", "debug 10m"}, []any{entry["who"], entry["action"], entry["what"]})

	for _, wrong := range []string{`{}`, `{"level": "loud"}`, `{"level": "debug", "for": "x"}`, `{"level": "debug", "for": "0s"}`, `{"level": "debug", "for": "8d"}`} {
		set(wrong, operator).refused(http.StatusBadRequest, "invalid")
	}
	set(`{"level": "warn"}`, bearer(viewerToken)).refused(http.StatusForbidden, "forbidden")
	set(`{"level": "warn"}`, bearer("some-queues-1")).refused(http.StatusForbidden, "forbidden")
	assert.Equal(t, slog.LevelDebug, s.level.current)
	set(`{"level": "warn"}`, operator).is(http.StatusOK)
	assert.Equal(t, level{slog.LevelWarn, 0}, *s.level)

	readOnly := newScene(t, scenery{readOnly: true})
	readOnly.call("PUT", "/log-level", `{"level": "debug"}`).refused(http.StatusForbidden, "read_only")
}

func TestProfiles(t *testing.T) {
	t.Parallel()
	get := func(s *scene, path, token, from string) *httptest.ResponseRecorder {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		r.RemoteAddr, r.Host = from, "localhost"
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		s.api.Profiles().ServeHTTP(w, r)
		return w
	}
	const here, elsewhere = "127.0.0.1:1", "192.0.2.1:1"
	s := newScene(t, scenery{tokens: threeRoles + "\nsome-queues-1 operator queues=QUEUE\n"})
	for token, want := range map[string]int{
		"": http.StatusUnauthorized, producerToken: http.StatusForbidden, viewerToken: http.StatusForbidden,
		"some-queues-1": http.StatusForbidden, operatorToken: http.StatusOK,
	} {
		for _, path := range []string{"", "heap", "goroutine?debug=2"} {
			assert.Equal(t, want, get(s, "/debug/pprof/"+path, token, here).Code, "%s as %s", path, token)
		}
	}
	assert.Contains(t, s.log.String(), "action=profile what=heap")
	for path, want := range map[string]int{
		"cmdline": http.StatusNotFound, "profile?seconds=61": http.StatusBadRequest, "trace?seconds=NaN": http.StatusBadRequest, "profile?seconds=-1": http.StatusBadRequest,
	} {
		assert.Equal(t, want, get(s, "/debug/pprof/"+path, operatorToken, here).Code, path)
	}

	for site, want := range map[string]int{"cross-site": http.StatusForbidden, "same-site": http.StatusForbidden, "none": http.StatusOK, "same-origin": http.StatusOK} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/pprof/", http.NoBody)
		r.Header.Set("Authorization", "Bearer "+operatorToken)
		r.Header.Set("Sec-Fetch-Site", site)
		w := httptest.NewRecorder()
		s.api.Profiles().ServeHTTP(w, r)
		assert.Equal(t, want, w.Code, site)
	}

	open := newScene(t, scenery{})
	assert.Equal(t, http.StatusOK, get(open, "/debug/pprof/", "", here).Code)
	assert.Equal(t, http.StatusForbidden, get(open, "/debug/pprof/", "", elsewhere).Code)
	assert.True(t, strings.HasPrefix(get(open, "/debug/pprof/goroutine?debug=1", "", here).Body.String(), "goroutine profile"))
}
