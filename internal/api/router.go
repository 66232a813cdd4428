package api

import (
	"context"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/engine/tracing"
)

const (
	// base is where the API begins.
	base = "/api/v1"
	// callTimeout bounds what a call may take, and its body.
	callTimeout = 13 * time.Second
	// mostCalls is how many calls are served at once; others wait for one of them.
	mostCalls = 64
)

// router takes the operations from huma and puts what all of them need before them.
// It knows two things that [http.ServeMux] does not: that the last part of a path may
// have a verb behind a colon, and that an id may have slashes.
type router struct {
	*http.ServeMux

	core  *core
	verbs map[string]map[string]http.HandlerFunc // by pattern and verb
	calls chan struct{}                          // a place in it is a call that is served
}

func newRouter(c *core) *router {
	return &router{ServeMux: http.NewServeMux(), core: c, verbs: map[string]map[string]http.HandlerFunc{}, calls: make(chan struct{}, mostCalls)}
}

// Handle implements huma's Adapter.
func (rt *router) Handle(op *huma.Operation, handler func(huma.Context)) {
	serve := rt.admitted(op, func(w http.ResponseWriter, r *http.Request) { handler(humago.NewContext(op, r, w)) })
	where, verb, hasVerb := strings.Cut(op.Path, "}:")
	if hasVerb {
		where += "}"
	}
	pattern := op.Method + " " + base + strings.Replace(where, "{id}", "{id...}", 1)
	if !hasVerb {
		rt.HandleFunc(pattern, withDots(serve))
		return
	}
	if rt.verbs[pattern] == nil {
		rt.verbs[pattern] = map[string]http.HandlerFunc{}
		name := where[strings.LastIndexByte(where, '{')+1 : len(where)-1]
		rt.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { rt.byVerb(w, r, pattern, name) })
	}
	rt.verbs[pattern][verb] = serve
}

// byVerb serves a path whose last part has a verb behind it.
func (rt *router) byVerb(w http.ResponseWriter, r *http.Request, pattern, name string) {
	value := r.PathValue(name)
	at := strings.LastIndexByte(value, ':')
	r.SetPathValue(name, value[:at])
	rt.verbs[pattern][value[at+1:]](w, r)
}

// ServeHTTP serves the API, and answers what it does not have as it answers all else.
func (rt *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if escaped := r.URL.EscapedPath(); path.Clean(escaped) != strings.TrimSuffix(escaped, "/") { // The mux would send the caller elsewhere.
		writeProblem(w, notFound("write the slashes and dots of an id as %2F and %2E"))
		return
	}
	if rt.has(r, r.Method) {
		rt.ServeMux.ServeHTTP(w, r)
		return
	}
	p := notFound("there is no such call")
	if allow := strings.Join(rt.allowed(r), ", "); allow != "" {
		w.Header().Set("Allow", allow)
		p = newProblem(http.StatusMethodNotAllowed, "not_found", "allowed are "+allow)
	}
	writeProblem(w, p)
}

// allowed are the methods that there is a call of at the path. The mux' own list has those of
// other paths: of the one with a slash behind it, of all verbs, and of no verb.
func (rt *router) allowed(r *http.Request) (methods []string) {
	for _, method := range []string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPatch, http.MethodPost, http.MethodPut} {
		if rt.has(r, method) {
			methods = append(methods, method)
		}
	}
	return methods
}

// has reports whether there is a call of that method at the path.
func (rt *router) has(r *http.Request, method string) bool {
	asked := r.WithContext(r.Context())
	asked.Method = method
	_, pattern := rt.Handler(asked)
	if strings.Count(pattern, "/") > strings.Count(r.URL.EscapedPath(), "/") { // The mux would add a slash.
		return false
	}
	last := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	at := strings.LastIndexByte(last, ':')
	if verbs := rt.verbs[pattern]; verbs != nil {
		return at >= 0 && verbs[last[at+1:]] != nil
	}
	mayHaveColon := strings.HasSuffix(pattern, "{id...}") || !strings.HasSuffix(pattern, "}")
	return pattern != "" && (at < 0 || mayHaveColon)
}

// Keys of an operation's metadata.
const (
	metaRoles = "roles"
	metaOpen  = "open"
)

// admitted serves a call if its caller may make it, within its time and number.
func (rt *router) admitted(op *huma.Operation, serve http.HandlerFunc) http.HandlerFunc {
	allowed, _ := op.Metadata[metaRoles].([]access.Role)
	isOpen, _ := op.Metadata[metaOpen].(bool)
	isChange := op.Method != http.MethodGet
	return func(w http.ResponseWriter, r *http.Request) {
		caller, err := rt.core.config.Guard.Admit(r, allowed, isChange)
		if err == nil {
			err = rt.core.mayUse(caller, r.PathValue("queue"))
		}
		if err == nil {
			err = checkQuery(r.URL.RawQuery)
		}
		if err == nil && r.ContentLength != 0 {
			err = checkType(r)
		}
		if err != nil {
			writeProblem(w, problem(err))
			return
		}
		ctx := context.WithValue(tracing.Caller(r.Context(), r.Header), callKey{}, call{caller, r})
		if isOpen { // It bounds itself.
			serve(w, r.WithContext(ctx))
			return
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		select {
		case rt.calls <- struct{}{}:
			defer func() { <-rt.calls }()
			serve(w, r.WithContext(ctx))
		case <-ctx.Done():
			writeProblem(w, newProblem(http.StatusTooManyRequests, "rate_limited", "too many calls at once"))
		}
	}
}

// checkQuery refuses what would be left out of a query without a word: another message
// may be meant then.
func checkQuery(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return invalid("query", "the query cannot be read: "+err.Error())
	}
	for name, all := range values {
		if len(all) > 1 {
			return invalid(name, name+" is given twice")
		}
	}
	return nil
}

// checkType refuses a body that is not said to be JSON: that much, a page of another
// site cannot send without asking first.
func checkType(r *http.Request) error {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		p := invalid("Content-Type", "the body must be JSON: Content-Type: application/json")
		p.Status, p.Title = http.StatusUnsupportedMediaType, http.StatusText(http.StatusUnsupportedMediaType)
		return p
	}
	return nil
}

// callKey is where the context of a call has who makes it.
type callKey struct{}

// call is a call and who makes it.
type call struct {
	*access.Caller

	request *http.Request
}

func callOf(ctx context.Context) call {
	c, _ := ctx.Value(callKey{}).(call)
	return c
}
