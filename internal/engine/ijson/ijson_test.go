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

// letters reads itself, so nothing is known of its names.
type letters struct{ text string }

func (l *letters) UnmarshalJSON(text []byte) error {
	l.text = string(text)
	return nil
}

type inner struct {
	B string `json:"b,omitempty"`
}

type outer struct {
	inner
	ID    string             `json:"id"`
	Late  *inner             `json:"late"`
	All   []inner            `json:"all"`
	Map   map[string]*inner  `json:"map"`
	Plain map[string]string  `json:"plain"`
	Own   map[string]letters `json:"own"`
	Name  string
	Left  string `json:"-"`
	Any   any    `json:"any"`
}

func TestDecode(t *testing.T) {
	t.Parallel()
	var got outer
	require.NoError(t, ijson.Decode([]byte(`{"b": "1", "id": "2", "late": {"b": "3"}, "all": [{"b": "4"}], "map": {"B": {"b": "5"}},
		"plain": {"ID": "6", "id": "7"}, "own": {"a": {"B": 8}}, "Name": "9", "any": {"ID": 1, "id": [{"B": 2}]}}`), &got))
	require.Equal(t, outer{
		inner: inner{"1"}, ID: "2", Late: &inner{"3"}, All: []inner{{"4"}}, Map: map[string]*inner{"B": {"5"}},
		Plain: map[string]string{"ID": "6", "id": "7"}, Own: map[string]letters{"a": {`{"B": 8}`}}, Name: "9",
		Any: map[string]any{"ID": 1.0, "id": []any{map[string]any{"B": 2.0}}},
	}, got)
	for text, want := range map[string]string{
		`{"ID": "a"}`:                            "ID is unknown: it is called id",
		`{"id": "a", "Id": "b"}`:                 "Id is unknown: it is called id",
		`{"name": "a"}`:                          "name is unknown: it is called Name",
		`{"-": "a"}`:                             "- is unknown",
		`{"Left": "a"}`:                          "Left is unknown",
		`{"B": "a"}`:                             "B is unknown: it is called b",
		`{"late": {"B": "a"}}`:                   "late.B is unknown: it is called b",
		`{"all": [{}, {"c": 1}]}`:                "all[1].c is unknown",
		`{"map": {"a": {"c": 1}}}`:               "map.a.c is unknown",
		`{"id": "a", "id": "b"}`:                 "id is given twice",
		`{"": 1}`:                                `"" is unknown`,
		`{"a\u0000b": 1}`:                        `"a\x00b" is unknown`,
		`{"` + strings.Repeat("a", 65) + `": 1}`: `"` + strings.Repeat("a", 64) + `" is unknown`,
		`{"plain": {"a": null}}`:                 "plain.a is null",
		`{"id": 7}`:                              "cannot unmarshal number",
		`{"id": "a"} {}`:                         "after top-level value",
		`{"id": "a"`:                             "unexpected end",
		``:                                       "unexpected end",
		`[{"ID": "a"}]`:                          "cannot unmarshal array",
	} {
		require.ErrorContains(t, ijson.Decode([]byte(text), &outer{}), want, text)
	}
}

// TestDecodeMap: the members of a map are values, none of which is left out by null.
func TestDecodeMap(t *testing.T) {
	t.Parallel()
	var got map[string]string
	require.NoError(t, ijson.Decode([]byte(` {"a": "b", "A": "\\n"} `), &got))
	require.Equal(t, map[string]string{"a": "b", "A": `\n`}, got)
	for text, want := range map[string]string{
		`{"a": null}`: "a is null", `{"a": "b", "a": "c"}`: "a is given twice", `{"a": "\udc00"}`: "a has ", `[]`: "cannot unmarshal", `{"a": 1}`: "cannot unmarshal",
	} {
		require.ErrorContains(t, ijson.Decode([]byte(text), &map[string]string{}), want, text)
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
