package api_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
)

// describedCall is a call as the document has it.
type describedCall struct {
	method, path string
	op           *huma.Operation
}

// calls are those of the document that end by themselves.
func calls(spec *huma.OpenAPI) (all []describedCall) {
	for where, item := range spec.Paths {
		for method, op := range map[string]*huma.Operation{"GET": item.Get, "POST": item.Post, "DELETE": item.Delete, "PUT": item.Put, "PATCH": item.Patch} {
			if op != nil && op.OperationID != "events" {
				all = append(all, describedCall{method, where, op})
			}
		}
	}
	slices.SortFunc(all, func(a, b describedCall) int { return strings.Compare(a.path+a.method, b.path+b.method) })
	return all
}

var (
	strangeTexts = []string{
		"", "a", "t", "0s", "1h", "-5m", "2d", "30x", "2031-01-01T00:00:00Z", "1969-01-01T00:00:00Z", "keep", "replace", "dead", "in_flight",
		"order/1", "a:reschedule", ":", "..", "%2F", "ü", "\x00", "a b", " a", "*", "eA==", strings.Repeat("x", 300), "1700000000000-0", "\"q\"",
	}
	strangeNumbers = []int{-1, 0, 1, 100, 1000, 1001, 1 << 40}
)

// drawn makes a value of a schema, or, now and then, one that is not.
func drawn(t *rapid.T, spec *huma.OpenAPI, schema *huma.Schema) any {
	if len(schema.AllOf) > 0 {
		schema = schema.AllOf[0]
	}
	if schema.Ref != "" {
		schema = spec.Components.Schemas.SchemaFromRef(schema.Ref)
	}
	if rapid.IntRange(0, 19).Draw(t, "strange") == 0 {
		return rapid.SampledFrom([]any{nil, 7, "text", true, []any{}, map[string]any{}}).Draw(t, "value")
	}
	switch schema.Type {
	case huma.TypeString:
		return rapid.SampledFrom(strangeTexts).Draw(t, "text")
	case huma.TypeInteger, huma.TypeNumber:
		return rapid.SampledFrom(strangeNumbers).Draw(t, "number")
	case huma.TypeBoolean:
		return rapid.Bool().Draw(t, "bool")
	case huma.TypeArray:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			list = append(list, drawn(t, spec, schema.Items))
		}
		return list
	}
	object := map[string]any{}
	for _, name := range slices.Sorted(keysOf(schema.Properties)) {
		if slices.Contains(schema.Required, name) || rapid.Bool().Draw(t, "has "+name) {
			object[name] = drawn(t, spec, schema.Properties[name])
			if name == "in" && rapid.Bool().Draw(t, "soon") {
				object[name] = "1h"
			}
		}
	}
	if rapid.IntRange(0, 9).Draw(t, "more") == 0 {
		object["unknown"] = 1
	}
	return object
}

func keysOf[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// target is the call's path with drawn parameters.
func (d describedCall) target(t *rapid.T) string {
	where, query := d.path, url.Values{}
	for _, p := range d.op.Parameters {
		switch value := rapid.SampledFrom(strangeTexts).Draw(t, p.Name); {
		case p.In == "path" && p.Name == "queue":
			where = strings.Replace(where, "{queue}", rapid.SampledFrom([]string{"QUEUE", "QUEUE", "QUEUE", "nowhere"}).Draw(t, "queue"), 1)
		case p.In == "path":
			if rapid.Bool().Draw(t, "known") {
				value = "a"
			}
			where = strings.Replace(where, "{"+p.Name+"}", url.PathEscape(value), 1)
		case p.In == "query" && rapid.IntRange(0, 3).Draw(t, "has "+p.Name) == 0: // Few are right by chance.
			if p.Schema.Type == huma.TypeInteger {
				value = strconv.Itoa(rapid.SampledFrom(strangeNumbers).Draw(t, "number"))
			}
			query.Set(p.Name, value)
		}
	}
	return where + "?" + query.Encode()
}

// TestSpecIsKept makes calls that the document describes, with right and with strange
// values: each answer is one that the document describes, and none is a failure.
func TestSpecIsKept(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	s.rooms = inspect.Rooms{Budget: &inspect.Room{Used: 1, Limit: 2, FullAt: time.Now()}, Redis: &inspect.Room{Limit: 2}}
	spec := s.api.Spec()
	all := calls(spec)
	schedule := func() { // not by the API, which limits how often
		if _, err := s.client.Schedule(t.Context(), delay.Message{ID: "a", Topic: "t"}, delay.After(time.Hour)); !errors.Is(err, delay.ErrDuplicate) {
			require.NoError(t, err)
		}
		if _, err := s.declarations.Get(t.Context(), "a"); err != nil {
			now, err := s.rdb.Time(t.Context()).Result()
			require.NoError(t, err)
			s.declare("a", `{"sink":"events"}`, now)
		}
		_, err := s.client.SetRecurring(t.Context(), delay.Recurring{Name: "a", Cron: "@daily", Message: delay.Message{Topic: "t"}})
		require.NoError(t, err)
	}
	found, err := job.New(s.queue).Start(t.Context(), job.Spec{Verb: job.Cancel, Filter: inspect.Filter{Tag: "none"}})
	require.NoError(t, err)
	for _, d := range all { // as it should be called
		schedule()
		body, target := rightBodies[d.op.OperationID], strings.Replace(d.path, "{queue}", "QUEUE", 1)
		if d.op.OperationID == "cancelTagged" {
			target += "?tag=none"
		}
		var headers []string
		if d.op.OperationID == "deleteDeclaration" {
			headers = []string{"If-Match", "*"}
		}
		a := s.call(d.method, strings.NewReplacer("{id}", "a", "{job}", found, "{name}", "a").Replace(target), body, headers...)
		require.Less(t, a.status, http.StatusBadRequest, "%s: %s", d.op.OperationID, a.body)
		d.check(t, spec, a, target)
	}
	rapid.Check(t, func(rt *rapid.T) {
		schedule()
		for range 8 {
			d := rapid.SampledFrom(all).Draw(rt, "call")
			var body any
			if d.op.RequestBody != nil {
				content, err := json.Marshal(drawn(rt, spec, d.op.RequestBody.Content["application/json"].Schema))
				require.NoError(t, err)
				body = string(content)
			}
			target := d.target(rt)
			a := s.call(d.method, target, body)
			if slices.Contains([]int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, a.status) {
				continue // A machine that is busy.
			}
			d.check(rt, spec, a, target+" "+text(body))
		}
	})
}

// TestAllow: a refused method is answered with those that the path has, and no others.
func TestAllow(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	want := map[string][]string{
		"/queues/QUEUE/messages/a:explode": {"DELETE", "GET"}, "/queues/QUEUE/messages/a:reschedule": {"DELETE", "GET"}, // Ids of messages.
		"/queues/QUEUE/messages/a:publish-now": {"DELETE", "GET"}, "/openapi.json": {"GET"},
	}
	for _, d := range calls(s.api.Spec()) {
		where := strings.NewReplacer("{queue}", "QUEUE", "{id}", "a", "{job}", "a", "{name}", "a").Replace(d.path)
		want[where] = append(want[where], d.method)
	}
	for where, methods := range want {
		if slices.Contains(methods, "GET") {
			methods = append(methods, "HEAD")
		}
		slices.Sort(methods)
		a := s.call("PATCH", where, nil)
		a.refused(http.StatusMethodNotAllowed, "method_not_allowed")
		assert.Equal(t, strings.Join(methods, ", "), a.header.Get("Allow"), where)
	}
	for where, method := range map[string]string{"/queues/QUEUE": "POST", "/queues/QUEUE:pause": "GET", "/queues/QUEUE/messages": "DELETE"} {
		assert.NotContains(t, s.call(method, where, nil).header.Get("Allow"), method, where)
	}
}

// rightBodies are those of the calls that need one.
var rightBodies = map[string]any{
	"schedule":      `{"topic": "t", "in": "1h"}`,
	"scheduleBatch": `{"messages": [{"topic": "t", "in": "1h"}, {"topic": "", "in": "1h"}]}`,
	"reschedule":    `{"in": "1h"}`,
	"pause":         `{"topic": "t"}`, "setLogLevel": `{"level": "debug", "for": "10m"}`,
	"cancelAll": `{"filter": {"tag": "none"}}`, "rescheduleAll": `{"filter": {"tag": "none"}, "by": "-30m"}`,
	"setRecurring":      `{"topic": "t", "cron": "@hourly"}`,
	"declare":           `{"sink": "events"}`,
	"acknowledgeLosses": `{"losses": ["queue:none"]}`,
	"redriveAll":        `{"filter": {"state": "dead"}}`, "purgeAll": `{"filter": {"reason": "none"}, "dry_run": true}`,
}

// response is what the document says of a status; nil where it says nothing.
func (d describedCall) response(spec *huma.OpenAPI, status int) *huma.Response {
	response := d.op.Responses[strconv.Itoa(status)]
	if response != nil && response.Ref != "" {
		return spec.Components.Responses[path.Base(response.Ref)]
	}
	return response
}

// check compares an answer with what the document says.
func (d describedCall) check(t interface {
	Fatalf(format string, args ...any)
}, spec *huma.OpenAPI, a answer, asked string,
) {
	if a.status >= http.StatusInternalServerError {
		t.Fatalf("%s %s: %d %s", d.method, asked, a.status, a.body)
	}
	response, kind := d.response(spec, a.status), "application/json"
	if response == nil {
		t.Fatalf("%s %s: %d is not in the document", d.method, asked, a.status)
	}
	if a.status >= http.StatusBadRequest {
		kind = "application/problem+json"
	}
	var value any
	if err := json.Unmarshal(a.body, &value); err != nil || a.header.Get("Content-Type") != kind {
		t.Fatalf("%s %s: %s %s", d.method, asked, a.header.Get("Content-Type"), a.body)
	}
	result := &huma.ValidateResult{}
	huma.Validate(spec.Components.Schemas, response.Content[kind].Schema, huma.NewPathBuffer([]byte{}, 0), huma.ModeReadFromServer, value, result)
	if len(result.Errors) > 0 {
		t.Fatalf("%s %s: %v in %s", d.method, asked, result.Errors, a.body)
	}
}

// FuzzCalls: whatever the path, the query and the body of any call are, the answer is one that the
// document describes, and no failure. It checks I14 of the entrance.
func FuzzCalls(f *testing.F) {
	s := newScene(f, scenery{})
	spec := s.api.Spec()
	all := calls(spec)
	for i, d := range all {
		body, _ := rightBodies[d.op.OperationID].(string)
		f.Add(uint(i), "a", "", body)           //nolint:gosec // an index
		f.Add(uint(i), "..", "limit=1", `[[[[`) //nolint:gosec // an index
	}
	at := func(id string) uint {
		return uint(slices.IndexFunc(all, func(d describedCall) bool { return d.op.OperationID == id })) //nolint:gosec // an index
	}
	for _, body := range []string{
		`{"topic": "t", "at": "2031-01-01T00:00:00Z", "id": "a", "key": "k", "headers": {"a": "b"}, "body": "x", "conflict": "keep"}`,
		`{"Topic": "t", "topic": "u", "in": "1h"}`, `{"topic": "\ud800", "in": "1h"}`, `{"topic": null, "in": {}}`, "\xff",
	} {
		f.Add(at("schedule"), "", "", body)
		f.Add(at("scheduleBatch"), "", "", `{"messages": [`+body+`]}`)
	}
	for _, query := range []string{"state=dead&tag=t", "after=AAAA&limit=2&order=due", "due_before=1h&id_prefix=a", "tag=none&key=k", "%zz", "a=;&&=", "limit=-1&limit=2"} {
		f.Add(at("list"), "", query, "")
		f.Add(at("cancelTagged"), "", query, "")
	}
	f.Fuzz(func(t *testing.T, which uint, id, query, body string) {
		d := all[which%uint(len(all))]
		id = url.PathEscape(id)
		target := strings.NewReplacer("{queue}", "QUEUE", "{id}", id, "{job}", id, "{topic}", id, "{name}", id).Replace(d.path) + "?" + query
		if _, err := url.Parse(target); err != nil || strings.ContainsAny(target, " \x7f") || strings.ContainsFunc(target, unicode.IsControl) {
			return // The test's client does not send it.
		}
		here := *s
		here.t = t
		a := here.call(d.method, target, body)
		if !slices.Contains([]int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout}, a.status) {
			d.check(t, spec, a, target+" "+body)
		}
	})
}
