package admin

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// Check is how one thing is that the bridge needs.
type Check struct {
	// Name says what: redis, or sink and its name.
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Detail says what is wrong, in one line and without secrets.
	Detail string `json:"detail,omitempty"`
}

// Readiness is how the bridge is. Ready is its own decision, not the sum of the
// checks: a sink that is down is told, but is no reason to be unready.
type Readiness struct {
	Ready  bool    `json:"ready"`
	Checks []Check `json:"checks"`
}

// probes returns what both listeners serve.
func (s *Server) probes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", s.livez)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", s.config.Metrics)
	return mux
}

func (s *Server) livez(w http.ResponseWriter, _ *http.Request) {
	if err := s.config.Live(); err != nil {
		reply(w, http.StatusServiceUnavailable, "text/plain; charset=utf-8", line("down", "loop", err.Error()))
		return
	}
	reply(w, http.StatusOK, "text/plain; charset=utf-8", "ok\n")
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	readiness := s.config.Ready()
	status := http.StatusOK
	if !readiness.Ready {
		status = http.StatusServiceUnavailable
	}
	if !strings.Contains(r.Header.Get("Accept"), "application/json") {
		reply(w, status, "text/plain; charset=utf-8", readiness.text())
		return
	}
	if readiness.Checks == nil {
		readiness.Checks = []Check{}
	}
	body, err := json.Marshal(readiness)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	reply(w, status, "application/json", string(body)+"\n")
}

// text writes a line a check: "ok redis", "down sink events: connection refused".
func (r Readiness) text() string {
	var text strings.Builder
	for _, check := range r.Checks {
		state := "down"
		if check.OK {
			state = "ok"
		}
		text.WriteString(line(state, check.Name, check.Detail))
	}
	if len(r.Checks) == 0 && r.Ready {
		return "ok\n"
	}
	return text.String()
}

func line(state, name, detail string) string {
	text := state + " " + name
	if detail != "" {
		text += ": " + strings.Join(strings.Fields(detail), " ")
	}
	return text + "\n"
}

func reply(w http.ResponseWriter, status int, contentType, body string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	// An error means that the caller has gone.
	_, _ = io.WriteString(w, body)
}
