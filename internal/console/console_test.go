package console_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/console"
)

// TestThePageIsWhole follows every address that the page and its scripts load.
func TestThePageIsWhole(t *testing.T) {
	t.Parallel()
	loads := regexp.MustCompile(`(?:href|src)="([^"#]+)"|from '([^']+)'`)
	seen, todo := map[string]bool{}, []string{"/"}
	for len(todo) > 0 {
		path := todo[0]
		todo = todo[1:]
		if seen[path] {
			continue
		}
		seen[path] = true
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
		w := httptest.NewRecorder()
		console.Handler().ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code, path)
		require.Contains(t, w.Header().Get("Content-Security-Policy"), "default-src 'none'", path)
		for _, found := range loads.FindAllStringSubmatch(w.Body.String(), -1) {
			reference := found[1] + found[2]
			require.NotRegexp(t, `^(?:[a-z]+:)?/`, reference, "%s loads from elsewhere", path)
			next, err := r.URL.Parse(reference)
			require.NoError(t, err)
			todo = append(todo, next.Path)
		}
	}
	require.Contains(t, seen, "/pages/overview.js")
	require.Contains(t, seen, "/style.css")
}
