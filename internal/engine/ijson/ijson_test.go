package ijson_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/ijson"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a": 1, "b": [true, {"c": ""}], "d": {}, "e": null}`: "",
		` [ ] `:                                 "",
		`7`:                                     "",
		`-1.5e3 `:                               "",
		`{"a": {"a": {"a": 1}}}`:                "",
		`{"a": "\ud83d\ude00", "A": "\\ud800"}`: "",
		`{"a": "\"", "b": "\\", "c": "\u00e9\ue000\ud7ff"}`: "",
		`{"headers": {"a": null}}`:                          "headers.a is null",
		`{"tags": ["a", null ]}`:                            "tags[1] is null",
		`[null]`:                                            "",
		`{"a": {"b": {}}, "c": null}`:                       "",
		`{"a": 1, "a": 1}`:                                  "a is given twice",
		`{"id": 1, "\u0069d": 2}`:                           "id is given twice",
		`{"headers": {"a": "b", "a": "c"}}`:                 "headers.a is given twice",
		`{"messages": [{}, {"in": "1h", "in": "2h"}]}`:      "messages[1].in is given twice",
		`[[{"a": 1, "a": 1}]]`:                              "[0][0].a is given twice",
		`{"a": "\ud800"}`:                                   `a has \ud800, half`,
		`{"a": "x\uDC00y"}`:                                 `a has \udc00, half`,
		`{"a": "\ud800\ud800\udc00"}`:                       `a has \ud800, half`,
		`{"a": "\ud83d\\ude00"}`:                            `a has \ud83d, half`,
		`"\udfff"`:                                          `has \udfff, half`,
		`{"\ud800": 1}`:                                     `has \ud800, half`,
		`{"a": 1, "a"`:                                      "",
		``:                                                  "",
	} {
		err := ijson.Check([]byte(text))
		if want == "" {
			require.NoError(t, err, text)
			continue
		}
		require.ErrorContains(t, err, want, text)
	}
}

// FuzzCheck: whatever comes, it ends, and what it lets pass says the same decoded and
// encoded again.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{`{"a": ["\ud83d\ude00", {"b": 1.5}], "c": null}`, `{"a": 1, "a": 2}`, `"\ud800"`, `[[[]]]`, `{`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var decoded any
		err := ijson.Check(text)
		if json.Unmarshal(text, &decoded) != nil || err != nil {
			return
		}
		if !utf8.Valid(text) || strings.Contains(string(text), "\ufffd") || strings.Contains(strings.ToLower(string(text)), "fffd") {
			return // It had one itself.
		}
		again, err := json.Marshal(decoded)
		require.NoError(t, err)
		require.NotContains(t, string(again), "\ufffd", "%s", text)
	})
}
