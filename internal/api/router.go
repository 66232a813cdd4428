package api

import (
	"context"
	"crypto/rand"
	"mime"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/delaybridge/delaybridge/internal/api/access"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/tracing"
)

const (
	// base is where the API begins.
	base = "/api/v1"
	// callTimeout bounds what a call may take from when its body is there; answerTimeout
	// what it may take to be answered.
	callTimeout   = 13 * time.Second
	answerTimeout = callTimeout + 2*time.Second
	// Calls that are served at once; others wait for one of them.
	mostCalls, shareOfCalls, reserveOfCalls = 64, 32, 8
)

// router takes the operations from huma and puts what all of them need before them.
// It knows two things that [http.ServeMux] does not: that the last part of a path may
// have a verb behind a colon, and that an id may have slashes.
type router struct {
	*http.ServeMux

	core  *core
	verbs map[string]map[string]http.HandlerFunc // by pattern and verb
	// calls are those that are served; bytes and large are of the bodies in flight, see body.go.
	calls, bytes, large *quota
	bodyTimeout         time.Duration
}

func newRouter(c *core) *router {
	return &router{
		ServeMux: http.NewServeMux(), core: c, verbs: map[string]map[string]http.HandlerFunc{}, bodyTimeout: bodyTimeout,
		calls: newQuota(mostCalls, shareOfCalls, reserveOfCalls), bytes: newQuota(mostBytes, shareOfBytes, reserveOfBytes),
		large: newQuota(mostLarge, shareOfLarge, 0),
	}
}

// Handle implements huma's Adapter.
func (rt *router) Handle(op *huma.Operation, handler func(huma.Context)) {
	serve := rt.admitted(op, func(w http.ResponseWriter, r *http.Request) { handler(humago.NewContext(op, r, w)) })
	if isOpen, _ := op.Metadata[metaOpen].(bool); rt.core.config.Timed != nil && !isOpen {
		serve = rt.core.config.Timed(op.OperationID, serve).ServeHTTP
	}
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
	rt.verbs[pattern][verb] = withDots(serve)
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
	identify(w, r)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if escaped := r.URL.EscapedPath(); path.Clean(escaped) != strings.TrimSuffix(escaped, "/") { // The mux would send the caller elsewhere.
		writeProblem(w, notFound("write the slashes and dots of an id as %2F and %2E"))
		return
	}
	if rt.has(r, r.Method) {
		rt.ServeMux.ServeHTTP(w, r.WithContext(rt.core.withQueues(r.Context())))
		return
	}
	p := notFound("there is no such call")
	if allow := strings.Join(rt.allowed(r), ", "); allow != "" {
		w.Header().Set("Allow", allow)
		p = newProblem(http.StatusMethodNotAllowed, "method_not_allowed", "allowed are "+allow)
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
	metaRoles   = "roles"
	metaOpen    = "open"
	metaBody    = "body"
	metaCreates = "creates"
)

// admitted serves a call if its caller may make it, within its time and number.
func (rt *router) admitted(op *huma.Operation, serve http.HandlerFunc) http.HandlerFunc {
	allowed, _ := op.Metadata[metaRoles].([]access.Role)
	isOpen, _ := op.Metadata[metaOpen].(bool)
	isTraffic := slices.Contains(allowed, access.Producer)
	return func(w http.ResponseWriter, r *http.Request) {
		caller, err := rt.mayCall(r, op, allowed)
		if err != nil {
			rt.refuse(w, r, caller, op.OperationID, problem(err))
			return
		}
		// Without tokens, producers on the host are as good as operators: they have no reserve.
		isOperator := caller.Role == access.Operator && (!isTraffic || !caller.IsAnyone())
		ctx := context.WithValue(tracing.Caller(r.Context(), r.Header), callKey{}, callContext{caller, r, isOperator})
		ctx = store.WithTopics(ctx, caller.Topics())
		if isOpen { // It bounds itself.
			serve(w, r.WithContext(ctx))
			return
		}
		rt.serve(w, r.WithContext(ctx), op, serve)
	}
}

// refuse answers a call that is not served. The caller may be nil.
func (rt *router) refuse(w http.ResponseWriter, r *http.Request, caller *access.Caller, action string, p *Problem) {
	who := ""
	if caller != nil {
		who = caller.Name
	}
	rt.core.auditRefusal(r.Context(), r, who, action, p)
	writeProblem(w, p)
}

// mayCall returns who calls, if that may be.
func (rt *router) mayCall(r *http.Request, op *huma.Operation, allowed []access.Role) (*access.Caller, error) {
	caller, err := rt.core.config.Guard.Admit(r, allowed, op.Method != http.MethodGet)
	if err == nil {
		err = rt.core.mayUse(r.Context(), caller, r.PathValue("queue"))
	}
	if err == nil {
		err = checkQuery(r.URL.RawQuery)
	}
	if err == nil && r.ContentLength != 0 {
		err = checkType(r)
	}
	return caller, err
}

// serve serves a call when its body is there, and then a place: who is slow to send takes
// none from others.
func (rt *router) serve(w http.ResponseWriter, r *http.Request, op *huma.Operation, serve http.HandlerFunc) {
	caller := callOf(r.Context())
	limits, _ := op.Metadata[metaBody].(bodyLimits)
	if r.ContentLength != 0 {
		done, err := rt.readBody(w, r, limits, payerOf(caller.Caller, r), caller.isOperator)
		if err != nil {
			rt.refuse(w, r, caller.Caller, op.OperationID, problem(err))
			return
		}
		defer done()
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTimeout)) // As for reading.
	place := rt.calls.holding(payerOf(caller.Caller, r), caller.isOperator)
	if !place.wait(ctx, 1) {
		rt.refuse(w, r, caller.Caller, op.OperationID, newProblem(http.StatusTooManyRequests, "rate_limited", "too many calls at once"))
		return
	}
	defer place.release()
	serve(w, r.WithContext(ctx))
}

// requestID is the header that names a request in its answer and in the log.
const requestID = "X-Request-Id"

// saneID is a name that a caller may give its request.
var saneID = regexp.MustCompile(`^[A-Za-z0-9._:/+=-]{1,128}$`)

// identify gives a request an id in its answer: the caller's, or a new one.
func identify(w http.ResponseWriter, r *http.Request) {
	if !saneID.MatchString(r.Header.Get(requestID)) {
		r.Header.Set(requestID, rand.Text())
	}
	w.Header().Set(requestID, r.Header.Get(requestID))
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

// callKey is the key of a [callContext] in a call's context.
type callKey struct{}

// callContext is a call and who makes it.
type callContext struct {
	*access.Caller

	request *http.Request
	// isOperator says that it may use what is kept for operators.
	isOperator bool
}

func callOf(ctx context.Context) callContext {
	c, _ := ctx.Value(callKey{}).(callContext)
	return c
}
