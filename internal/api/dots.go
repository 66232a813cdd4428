package api

import (
	"net/http"
	"strings"
)

// withDots serves ids that no browser can ask for: it takes . and .. for a way up, however
// they are written. So dots=1 or dots=2 in the query says that they are meant.
func withDots(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if query := r.URL.Query(); r.PathValue("id") == "-" && query.Has("dots") {
			dots := map[string]int{"1": 1, "2": 2}[query.Get("dots")]
			if dots == 0 {
				writeProblem(w, invalid("dots", "dots must be 1 or 2"))
				return
			}
			r.SetPathValue("id", strings.Repeat(".", dots))
			query.Del("dots")
			r.URL.RawQuery = query.Encode()
		}
		serve(w, r)
	}
}
