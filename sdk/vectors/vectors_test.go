// Package vectors_test plays the vectors, which the SDKs in other languages play against a scripted server, against the
// real API and the real outbox.
package vectors_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// object is a JSON object.
type object = map[string]any

// call is a call in neutral form.
type call struct {
	Do      string `json:"do"`
	Queue   string `json:"queue"`
	ID      string `json:"id"`
	Key     string `json:"key"`
	Topic   string `json:"topic"`
	Body    string `json:"body"`
	Bytes   []byte `json:"bytes_base64"`
	Headers map[string]string
	Tags    []string
	InMs    *float64 `json:"in_ms"`
	At      *time.Time
	MaxWait float64 `json:"max_wait_ms"`
	Spread  float64 `json:"spread_ms"`
	Late    *struct {
		AfterMs float64 `json:"after_ms"`
		Then    string
	}
	Conflict string
}

// request is what an SDK sends.
type request struct {
	Method, Path string
	Query        map[string]string
	Headers      map[string]string
	Body         any
}

// answer is what a server answers. Text is there instead of Body if it is not JSON.
type answer struct {
	Status  int
	Headers map[string]string
	Body    any
	Text    string
}

// read reads a file of vectors. Members that this test does not know are for the SDKs' players.
func read(t *testing.T, file string, into any) {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, into), file)
}

// Values of placeholders.
var (
	instant = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`)
	newID   = regexp.MustCompile(`^[0-9A-HJKMNP-TV-Z]{26}$`)
)

// placeholders are the values that the text beginning with $ stands for, in one vector.
type placeholders map[string]string

// fits reports whether a placeholder may stand for the value: one that was met before stands for the same.
func (p placeholders) fits(name, value string) bool {
	if known, met := p[name]; met && name != "$DETAIL" {
		return known == value
	}
	p[name] = value
	switch name {
	case "$ID":
		return newID.MatchString(value)
	case "$DUE", "$THEN":
		return instant.MatchString(value)
	case "$DETAIL":
		return value != ""
	}
	return false
}

// differs says where a JSON value is not what the vector has; empty if it is.
func (p placeholders) differs(at string, want, got any) string {
	switch w := want.(type) {
	case object:
		g, ok := got.(object)
		if !ok || len(g) != len(w) {
			return fmt.Sprintf("%s: %v, not %v", at, got, want)
		}
		for name, value := range w {
			if difference := p.differs(at+"."+name, value, g[name]); difference != "" {
				return difference
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return fmt.Sprintf("%s: %v, not %v", at, got, want)
		}
		for i, value := range w {
			if difference := p.differs(fmt.Sprintf("%s[%d]", at, i), value, g[i]); difference != "" {
				return difference
			}
		}
		return ""
	case string:
		if g, ok := got.(string); ok && strings.HasPrefix(w, "$") && p.fits(w, g) {
			return ""
		}
	}
	if !assert.ObjectsAreEqual(want, got) {
		return fmt.Sprintf("%s: %v, not %v", at, got, want)
	}
	return ""
}

// TestNamesAreUnique: a failure names its vector.
func TestNamesAreUnique(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"calls.json", "faults.json", "batches.json", "outbox.json"} {
		var lists map[string][]struct{ Name string }
		read(t, file, &lists)
		require.Len(t, lists, 1, file)
		for _, list := range lists {
			require.NotEmpty(t, list, file)
			var names []string
			for _, vector := range list {
				names = append(names, vector.Name)
			}
			slices.Sort(names)
			assert.Len(t, slices.Compact(slices.Clone(names)), len(names), file)
		}
	}
}

// TestHandbookCountsVectors: the handbook tells how many vectors there are, and how many of the calls a fake can answer.
func TestHandbookCountsVectors(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/sdk/README.md")
	require.NoError(t, err)
	for _, file := range []string{"calls.json", "faults.json", "batches.json", "outbox.json"} {
		var lists map[string][]struct {
			Real  *bool
			Calls []struct{ Attempts []any }
		}
		read(t, file, &lists)
		var all, fakes, calls, attempts int
		for _, list := range lists {
			all = len(list)
			for _, vector := range list {
				if vector.Real == nil || *vector.Real {
					fakes++
				}
				calls += len(vector.Calls)
				for _, c := range vector.Calls {
					attempts += len(c.Attempts)
				}
			}
		}
		what, last := "", "–"
		switch file {
		case "calls.json":
			last = fmt.Sprint(fakes)
		case "faults.json":
			what = fmt.Sprintf("[^|]*, %d calls with %d attempts", calls, attempts)
		}
		row := fmt.Sprintf("(?m)^\\| `%s`: [^|]*%s \\| %d \\| .* \\| %s \\|$", regexp.QuoteMeta(file), what, all, last)
		assert.Regexp(t, row, string(page), file)
	}
}

// TestPlaceholders: what a vector does not say is not taken for right.
func TestPlaceholders(t *testing.T) {
	t.Parallel()
	decode := func(text string) (v any) {
		require.NoError(t, json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&v))
		return v
	}
	want := decode(`{"id": "$ID", "due": ["$DUE", "$DUE"], "n": 1, "detail": "$DETAIL"}`)
	const right = `{"id": "01JFXQ7Z8M3V5K2N4P6R8T0W1Y", "due": ["2031-01-31T09:00:00.000Z", "2031-01-31T09:00:00.000Z"], "n": 1, "detail": "why"}`
	assert.Empty(t, placeholders{}.differs("", want, decode(right)))
	for old, wrong := range map[string]string{
		`"01JFXQ7Z8M3V5K2N4P6R8T0W1Y"`: `"a"`, `.000Z"]`: `.001Z"]`, `"n": 1`: `"n": 2`, `"why"`: `""`, `{"id"`: `{"more": 1, "id"`, `"n": 1,`: ``,
	} {
		assert.NotEmpty(t, placeholders{}.differs("", want, decode(strings.Replace(right, old, wrong, 1))), wrong)
	}
}
