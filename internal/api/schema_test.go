package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// findable is a call of the document that is found by its path.
type findable struct {
	describedCall

	pattern *regexp.Regexp
}

func findables(spec *huma.OpenAPI) (all []findable) {
	for _, d := range calls(spec) {
		pattern := regexp.QuoteMeta(d.path)
		for name, part := range map[string]string{"queue": "[^/:]+", "id": ".+", "job": "[^/:]+"} {
			pattern = strings.Replace(pattern, regexp.QuoteMeta("{"+name+"}"), part, 1)
		}
		all = append(all, findable{d, regexp.MustCompile("^" + pattern + "$")})
	}
	return all
}

// find is the call of the document that is made by a method and a path; nil where there is none.
func (s *scene) find(method, where string) *describedCall {
	where, _, _ = strings.Cut(where, "?")
	where, err := url.PathUnescape(where)
	if err != nil {
		return nil
	}
	for _, d := range s.findables {
		if d.method == method && d.pattern.MatchString(where) {
			return &d.describedCall
		}
	}
	return nil
}

// documented fails the test whose call is answered by what the document does not say: a status,
// or the code of a problem.
func (s *scene) documented(method, where string, a answer) {
	s.t.Helper()
	d := s.find(method, where)
	if d == nil || a.status == http.StatusMethodNotAllowed {
		return
	}
	response := d.response(s.spec, a.status)
	if response == nil {
		s.t.Errorf("%s %s: %d is not in the document: %s", method, where, a.status, a.body)
		return
	}
	for header := range response.Headers {
		if header != "Idempotent-Replayed" && a.header.Get(header) == "" {
			s.t.Errorf("%s %s: %d has no %s", method, where, a.status, header)
		}
	}
	if a.status < http.StatusBadRequest {
		return
	}
	var problem any
	require.NoError(s.t, json.Unmarshal(a.body, &problem))
	for _, wrong := range s.wrong(response.Content["application/problem+json"].Schema, problem) {
		s.t.Errorf("%s %s: %d %s: %v", method, where, a.status, a.body, wrong)
	}
}

// wrong is what a value has that a schema has not.
func (s *scene) wrong(schema *huma.Schema, value any) []error {
	result := &huma.ValidateResult{}
	huma.Validate(s.spec.Components.Schemas, schema, huma.NewPathBuffer(nil, 0), huma.ModeWriteToServer, value, result)
	return result.Errors
}

func many(n int, item func(i int) string) (list []any) {
	for i := range n {
		list = append(list, item(i))
	}
	return list
}

func headersOf(n, length int) map[string]any {
	all := map[string]any{}
	for i := range n {
		all[fmt.Sprintf("%0*d", length, i)] = "v"
	}
	return all
}

// TestLimitsOfTheDocument: what is at a limit is right by the document and is taken, and what is
// beyond it is neither, and told in our words.
func TestLimitsOfTheDocument(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	s.schedule("a")
	x := strings.Repeat
	numbered := func(length int) func(int) string {
		return func(i int) string { return fmt.Sprintf("%0*d", length, i) }
	}
	with := func(base string, members ...any) map[string]any {
		var body map[string]any
		require.NoError(t, json.Unmarshal([]byte(base), &body))
		for i := 0; i < len(members); i += 2 {
			if body[members[i].(string)] = members[i+1]; members[i+1] == nil {
				delete(body, members[i].(string))
			}
		}
		return body
	}
	const (
		schedule = `{"topic": "t", "in": "1h"}`
		filter   = `{"filter": {"tag": "none"}}`
	)
	put := func(members ...any) map[string]any { return with(schedule, members...) }
	of := func(members ...any) map[string]any { return with(filter, members...) }
	for _, test := range []struct {
		method, path string
		right, wrong map[string]any
		field        string
	}{
		{"POST", "/queues/QUEUE/messages", put("id", x("i", 255)), put("id", x("i", 256)), "id"},
		{"POST", "/queues/QUEUE/messages", put("id", "i i"), put("id", "i i "), "id"},
		{"POST", "/queues/QUEUE/messages", put("id", "i\u00a1"), put("id", "i\u0080i"), "id"},
		{"POST", "/queues/QUEUE/messages", put("key", x("k", 255)), put("key", x("k", 256)), "key"},
		{"POST", "/queues/QUEUE/messages", put("key", ""), put("key", "\n"), "key"},
		{"POST", "/queues/QUEUE/messages", put("topic", x("t", 255)), put("topic", x("t", 256)), "topic"},
		{"POST", "/queues/QUEUE/messages", put("topic", "u"), put("topic", ""), "topic"},
		{"POST", "/queues/QUEUE/messages", put("headers", headersOf(64, 3)), put("headers", headersOf(65, 3)), "headers"},
		{"POST", "/queues/QUEUE/messages", put("headers", map[string]any{"a": "x\tx"}), put("headers", map[string]any{"a": "x\nx"}), "headers"},
		{"POST", "/queues/QUEUE/messages", put("headers", map[string]any{"a": ""}), put("headers", map[string]any{"a": " "}), "headers"},
		{"POST", "/queues/QUEUE/messages", put("tags", many(8, numbered(3))), put("tags", many(9, numbered(3))), "tags"},
		{"POST", "/queues/QUEUE/messages", put("tags", many(1, numbered(64))), put("tags", many(1, numbered(65))), "tags"},
		{"POST", "/queues/QUEUE/messages", put("tags", []any{"a-b"}), put("tags", []any{"a,b"}), "tags"},
		{"POST", "/queues/QUEUE/messages", put("tags", []any{"a-b"}), put("tags", []any{""}), "tags"},
		{"POST", "/queues/QUEUE/messages", put("in", "0"), put("in", "-1s"), "in"},
		{"POST", "/queues/QUEUE/messages", put("in", "1w2d1.5h"), put("in", "1y"), "in"},
		{"POST", "/queues/QUEUE/messages", put("in", nil, "at", "2031-01-01T00:00:00Z"), put("in", nil, "at", "2031-01-01"), "at"},
		{"POST", "/queues/QUEUE/messages", put("in", nil, "at", "2031-01-01T00:00:00.001+01:00"), put("at", "2031-01-01T00:00:00Z"), "in"},
		{"POST", "/queues/QUEUE/messages", put(), put("in", nil), "in"},
		{"POST", "/queues/QUEUE/messages", put("spread", "10m"), put("spread", "10 m"), "spread"},
		{"POST", "/queues/QUEUE/messages", put("late", map[string]any{"then": "drop", "after": "1h"}), put("late", map[string]any{"then": "drop", "after": "1"}), "late.after"},
		{"POST", "/queues/QUEUE/messages", put("late", map[string]any{"then": "publish"}), put("late", map[string]any{"then": "never"}), "late.then"},
		{"POST", "/queues/QUEUE/messages", put("conflict", "keep"), put("conflict", "wait"), "conflict"},
		{"POST", "/queues/QUEUE/messages", put("body", "x"), put("body", "x", "body_base64", "eA=="), "body_base64"},
		{"POST", "/queues/QUEUE/messages", put("body_base64", "eA=="), put("body_base64", "eA="), "body_base64"},
		{"POST", "/queues/QUEUE/messages", put(), put("tag", "x"), "tag"},
		{"POST", "/queues/QUEUE/messages/a:reschedule", with(`{"in": "2h"}`), with(`{"in": "2h", "at": "2031-01-01T00:00:00Z"}`), "in"},
		{"POST", "/queues/QUEUE/messages/a:reschedule", with(`{"in": "2h", "spread": "1m"}`), with(`{"in": "soon"}`), "in"},
		{"POST", "/queues/QUEUE/messages:cancel", of("rate", 0.0), of("rate", -1.0), "rate"},
		{"POST", "/queues/QUEUE/messages:cancel", of(), of("filter", map[string]any{}), "filter"},
		{"POST", "/queues/QUEUE/messages:cancel", of(), of("filter", map[string]any{"state": "late"}), "filter.state"},
		{"POST", "/queues/QUEUE/messages:reschedule", of("by", "-30m"), of("by", "30"), "by"},
		{"POST", "/queues/QUEUE/messages:reschedule", of("in", "30m"), of("in", "30m", "at", "2031-01-01T00:00:00Z"), "in"},
		{"PUT", "/log-level", with(`{"level": "info", "for": "10m"}`), with(`{"level": "info", "for": "x"}`), "for"},
	} {
		name := fmt.Sprint(test.method, " ", test.path, " ", test.wrong)
		name = name[:min(len(name), 200)]
		schema := s.find(test.method, test.path).op.RequestBody.Content["application/json"].Schema
		assert.Empty(t, s.wrong(schema, any(test.right)), "%s: %v", name, test.right)
		assert.NotEmpty(t, s.wrong(schema, any(test.wrong)), name)
		a := s.call(test.method, test.path, test.right)
		assert.Less(t, a.status, http.StatusBadRequest, "%s: %v: %s", name, test.right, a.body)
		a = s.call(test.method, test.path, test.wrong)
		assert.Equal(t, test.field, a.refused(http.StatusBadRequest, "invalid"), "%s: %s", name, a.body)
		assert.NotContains(t, string(a.body), "expected length", name)
		assert.NotContains(t, string(a.body), "to match", name)
	}
}

// TestParametersOfTheDocument is the same for what is no body.
func TestParametersOfTheDocument(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	x := strings.Repeat
	for _, test := range []struct {
		name, right, wrong string
		target             string // %s is the value
		headers            bool
		field              string
	}{
		{name: "id", right: x("i", 255), wrong: x("i", 256), target: "/queues/QUEUE/messages/%s", field: "id"},
		{name: "id", right: "i", wrong: " i", target: "/queues/QUEUE/messages/%s", field: "id"},
		{name: "key", right: x("k", 255), wrong: x("k", 256), target: "/queues/QUEUE/messages/a?key=%s", field: "key"},
		{name: "step", right: "1h", wrong: "1", target: "/queues/QUEUE/forecast?step=%s", field: "step"},
		{name: "within", right: "0s", wrong: "-1s", target: "/queues/QUEUE/demand?within=%s", field: "within"},
		{name: "limit", right: "1000", wrong: "1001", target: "/queues/QUEUE/messages?limit=%s", field: "limit"},
		{name: "due_to", right: "2031-01-01T00:00:00Z", wrong: "2031", target: "/queues/QUEUE/messages?due_to=%s", field: "due_to"},
		{name: "Idempotency-Key", right: x("k", 255), wrong: x("k", 258), headers: true, target: "/queues/QUEUE/messages", field: "Idempotency-Key"},
	} {
		method, body, ask := "GET", any(nil), func(value string) answer {
			return s.call("GET", fmt.Sprintf(test.target, url.PathEscape(value)), nil)
		}
		if test.headers {
			method, body = "POST", `{"topic": "t", "in": "1h"}`
			ask = func(value string) answer { return s.call(method, test.target, body, test.name, value) }
		}
		d := s.find(method, strings.ReplaceAll(test.target, "%s", "a"))
		require.NotNil(t, d, test.target)
		for _, p := range d.op.Parameters {
			if p.Name != test.name {
				continue
			}
			value := func(text string) any {
				if p.Schema.Type == huma.TypeInteger {
					n, err := strconv.ParseFloat(text, 64)
					require.NoError(t, err)
					return n
				}
				return text
			}
			assert.Empty(t, s.wrong(p.Schema, value(test.right)), "%s %s", test.name, test.right)
			assert.NotEmpty(t, s.wrong(p.Schema, value(test.wrong)), "%s %s", test.name, test.wrong)
		}
		a := ask(test.right)
		assert.NotEqual(t, http.StatusBadRequest, a.status, "%s %s: %s", test.name, test.right, a.body)
		a = ask(test.wrong)
		assert.Equal(t, test.field, a.refused(http.StatusBadRequest, "invalid"), "%s: %s", test.name, a.body)
	}
}

// TestProblemsOfThePage: docs/api.md has the statuses and codes that the document has.
func TestProblemsOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/api.md")
	require.NoError(t, err)
	told := map[int]map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| ([\\d, ]+) \\| ((?:`[a-z_]+`(?:, )?)+) \\|").FindAllStringSubmatch(string(page), -1) {
		for text := range strings.SplitSeq(row[1], ", ") {
			status, err := strconv.Atoi(text)
			require.NoError(t, err)
			if told[status] == nil {
				told[status] = map[string]bool{}
			}
			for code := range strings.SplitSeq(row[2], ", ") {
				told[status][strings.Trim(code, "`")] = true
			}
		}
	}
	assert.Equal(t, told, newScene(t, scenery{}).api.Problems())
}
