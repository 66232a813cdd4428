package command

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

const manyLines = `{"id": "a", "topic": "t", "in": "1h", "body": "x", "tags": ["sale"], "spread": "10m", "late": {"after": "1h", "then": "drop"}}

{"id": "b", "topic": "t", "in": "soon"}
{"id": "c", "topik": "t", "in": "1h"}
{"id": 7, "topic": "t", "in": "1h"}
not json
{"id": "a", "topic": "t", "in": "1h"}
{"id": "a", "topic": "t", "in": "2h", "conflict": "keep"}
{"id": "d", "topic": "t", "in": "1h", "late": {"then": "burn"}}
{"id": "e", "topic": "t", "at": "2999-01-01T00:00:00Z"}
{"topic": "t", "in": "1h", "body_base64": "AP8="}`

// TestScheduleBatch answers each line for itself.
func TestScheduleBatch(t *testing.T) {
	t.Parallel()
	f := setup(t)
	run := func(stdin string, args ...string) outcome {
		return bridge(t, stdin, append([]string{"schedule", "--config", f.file, "--queue", "orders", "--batch", "-"}, args...)...)
	}
	o := run(manyLines, "-o", "json")
	assert.Equal(t, exitUsage, o.code, "%+v", o)
	type answer struct{ status, code, field string }
	got := map[int]answer{}
	for _, line := range o.objects(t) {
		var a answer
		a.status, _ = line["status"].(string)
		if problem, ok := line["error"].(map[string]any); ok {
			a.code, _ = problem["code"].(string)
			a.field, _ = problem["field"].(string)
		}
		got[int(line["line"].(float64))] = a //nolint:forcetypeassert // a panic fails the test
	}
	assert.Equal(t, map[int]answer{
		1: {status: "created"}, 3: {code: "invalid", field: "in"}, 4: {code: "invalid", field: "topik"}, 5: {code: "invalid", field: "id"},
		6: {code: "invalid"}, 7: {code: "duplicate"}, 8: {status: "existing"}, 9: {code: "invalid", field: "late"},
		10: {code: "invalid", field: "at"}, 11: {status: "created"},
	}, got)
	assert.Contains(t, f.ok("get", "--id", "a").stdout, "sale")
	assert.Contains(t, o.stderr, "10 lines, 2 created, 1 duplicate, 1 existing, 6 invalid")

	o = run(strings.Repeat(`{"topic": "t", "in": "1h", "body": "x"}`+"\n", 1200))
	assert.Equal(t, exitDone, o.code, o.stderr)
	assert.Equal(t, 1200, strings.Count(o.stdout, "created "))

	o = run(`{"id": "a", "topic": "t", "in": "1h"}` + "\n" + `{"id": "f", "topic": "t", "in": "1h", "body": "` + strings.Repeat("x", 20_000) + `"}`)
	assert.Equal(t, exitUsage, o.code)
	assert.Contains(t, o.stderr, "line 1: ")
	assert.Contains(t, o.stderr, "line 2: body: the line is longer")
	assert.Equal(t, exitRefused, run(`{"id": "a", "topic": "t", "in": "1h"}`).code)
	assert.Equal(t, exitDone, run(`{"id": "a", "topic": "t", "in": "1h"}`, "--conflict", "keep").code)
	assert.Equal(t, exitDone, run("").code)

	for line, want := range map[string]string{
		`{"id": "z", "ID": "y", "topic": "t", "in": "1h"}`:              "line 1: ID is unknown: it is called id",
		`{"id": "z", "topic": "t", "in": "1h", "in": "2h"}`:             "line 1: in is given twice",
		`{"id": "\ud800", "topic": "t", "in": "1h"}`:                    `line 1: id has \ud800`,
		`{"id": "z", "topic": "t", "in": "1h", "headers": {"a": null}}`: "line 1: headers.a is null",
		`{"id": "z", "topic": "t", "in": 7}`:                            "line 1: in: number in the place of a string",
		`{"id": "z", "topic": "t", "in": "1h", "headers": {"a": 7}}`:    "line 1: headers: number in the place of a string",
		`{"id": "z", "topic": "t", "in": "1h", "late": "1h"}`:           "line 1: late: string in the place of an object",
		`{"id": "z", "topic": "t", "in": "1h", "tags": "a"}`:            "line 1: tags: string in the place of a list",
		`{"id": "z", "topic": "t", "in": "1h", "late": {"after": "x"}}`: `line 1: late.after "x" is not a duration`,
		`{"id": "z", "topic": "a b", "in": "1h"}`:                       `line 1: topic: invalid: topic "a b"`,
		`["z"]`: "must be a JSON object, not array",
	} {
		o = run(line)
		assert.Equal(t, exitUsage, o.code, line)
		assert.Contains(t, o.stderr, want, line)
	}

	for _, args := range [][]string{{"--topic", "t"}, {"--in", "1h"}, {"body"}} {
		assert.Equal(t, exitUsage, run("", args...).code, args)
	}
	o = f.run("schedule", "--in", "1h", "body")
	assert.Equal(t, exitUsage, o.code)
	assert.Contains(t, o.stderr, "--topic")
	assert.Equal(t, exitUsage, f.run("schedule", "--in", "1h", "--topic", "t").code)

	f.ok("schedule", "--in", "1h", "--topic", "t", "--id", "late", "--late", "90m", "--late-then", "drop", "x")
	assert.Contains(t, f.ok("get", "--id", "late").stdout, "drop 1h30m0s")
}
