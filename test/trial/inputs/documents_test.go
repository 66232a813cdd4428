package inputs

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf8"
)

// member is one of a JSON object; value is JSON.
type member struct{ name, value string }

// document is a text that is no good JSON object.
type document struct {
	what  string
	names []string
	text  string
}

// newDocument is a text with its fault in one field. Where its bytes are no UTF-8 the error is
// about all of it.
func newDocument(what string, names []string, text string) document {
	if !utf8.ValidString(text) {
		names = append(names, notText)
	}
	return document{what, names, text}
}

// notText is how an error names a text whose bytes are no UTF-8.
const notText = "UTF-8"

// wholeNames are what an error may name where the fault is in no field.
var wholeNames = []string{"JSON", notText, "object", "body"}

// object writes members as they are, so that one may come twice.
func object(members []member) string {
	parts := make([]string, len(members))
	for i, m := range members {
		parts[i] = quote(m.name) + ": " + m.value
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// quote is the text as a JSON string. Unlike the library's, bytes that are no UTF-8
// stay what they are.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(text) {
		switch {
		case c == '"' || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c < ' ':
			_, _ = fmt.Fprintf(&b, "\\u%04x", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// with replaces the value of a member, or adds one.
func with(members []member, name, value string) []member {
	changed, found := make([]member, len(members), len(members)+1), false
	for i, m := range members {
		if changed[i] = m; m.name == name {
			changed[i].value, found = value, true
		}
	}
	if !found {
		changed = append(changed, member{name, value})
	}
	return changed
}

// without has no members of these names.
func without(members []member, names ...string) (rest []member) {
	for _, m := range members {
		if !slices.Contains(names, m.name) {
			rest = append(rest, m)
		}
	}
	return rest
}

// documents are all that can be wrong with an object of these members, whatever they
// mean.
func documents(members []member, rnd *rand.Rand) (list []document) {
	list = brokenDocuments(object(members), rnd)
	for _, m := range members {
		list = append(list, badMember(members, m)...)
	}
	for _, name := range []string{"unknown", "__proto__", "", "ID\u0000"} {
		list = append(list, document{fmt.Sprintf("unknown member %q", name), []string{"unknown", "unexpected"}, object(with(members, name, "1"))})
	}
	return list
}

// brokenDocuments are no objects.
func brokenDocuments(good string, rnd *rand.Rand) (list []document) {
	add := func(what, text string) {
		list = append(list, document{fmt.Sprintf("%s %.60q", what, text), wholeNames, text})
	}
	for i := 1; i < len(good); i++ {
		add(fmt.Sprint("cut at ", i), good[:i])
	}
	for _, end := range []string{"x", "}", ",", "[]", good, "\x00"} {
		add("behind it", good+end)
	}
	for _, other := range []string{"[]", `"text"`, "7", "-1e999", "true", "NaN", "{", "'a'", "\ufeff" + good, "\x00", "[" + good + "]"} {
		add("no object", other)
	}
	for _, depth := range []int{20_000, 200_000} {
		add("deep", strings.Repeat("[", depth))
		add("deep", good[:len(good)-1]+`, "unknown": `+strings.Repeat(`{"a":`, depth)+"1"+strings.Repeat("}", depth)+"}")
	}
	for range randomTexts {
		// A line end would make two lines of it where lines are read.
		text := strings.ReplaceAll(string(randomBytes(rnd)), "\n", "\r")
		if strings.TrimSpace(text) != "" && !json.Valid([]byte(text)) {
			add("random", text)
		}
	}
	for range randomTexts {
		flipped := []byte(good)
		flipped[rnd.IntN(len(flipped))] = byte(rnd.IntN(' ')) // no control character may be in JSON but spaces
		if text := strings.ReplaceAll(string(flipped), "\n", "\r"); !json.Valid([]byte(text)) {
			add("flipped", text)
		}
	}
	return list
}

// badMember has a member twice, once more in capitals, with values of other types, and as
// no text.
func badMember(members []member, m member) (list []document) {
	capitals := strings.ToUpper(m.name)
	names := append(fieldNames(m.name), "."+m.name, capitals)
	add := func(what, text string) {
		list = append(list, newDocument(fmt.Sprintf("%s: %s: %.80q", m.name, what, text), names, text))
	}
	twice := append(with(members, m.name, m.value), m)
	add("twice", object(twice))
	add("in capitals", object(with(members, capitals, m.value)))
	for _, value := range []string{`"text"`, "7", "true", "[[]]", `{"a": {"b": 1}}`} {
		if kindOf(value) != kindOf(m.value) {
			add("wrong type", object(with(members, m.name, value)))
		}
	}
	if m.value[0] != '"' {
		return list
	}
	for _, text := range []string{`\ud800`, `\udc00`, `\ud800\ud800`, `a\udfffb`, `\ud83dx`, "\xff", "\xed\xa0\x80"} {
		add("no text", object(with(members, m.name, m.value[:len(m.value)-1]+text+`"`)))
	}
	return list
}

// kindOf tells the types of JSON apart.
func kindOf(value string) byte {
	switch c := value[0]; c {
	case '"', '[', '{':
		return c
	case 't', 'f':
		return 't'
	default:
		return '0'
	}
}
