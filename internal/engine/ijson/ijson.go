// Package ijson finds in JSON what the decoder of the standard library takes without a
// word and changes: a name that is given twice, of which it keeps the last value, a name
// in other capitals, which it takes for the same, half of a surrogate pair, in the place
// of which it puts U+FFFD, and a null in a list or map of strings, of which it makes an
// empty one. RFC 7493 (I-JSON) forbids the first and the third.
package ijson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"
)

// Error says what is wrong with which field.
type Error struct {
	// Field is the way to it, as messages[2].headers.a; empty where the text is no object.
	// Names that are long, or that cannot be printed, are quoted and cut.
	Field string
	// Text is the sentence that the field begins. It shows no value but half of a pair.
	Text string
}

func (e *Error) Error() string { return strings.TrimSpace(e.Field + " " + e.Text) }

// Check reports the first of these faults, as an [*Error], but for capitals. The text must
// be valid JSON: of another one nothing is said. What is null in the outermost object is
// taken for left out.
func Check(text []byte) error { return check(text, nil) }

// Decode decodes one value, and nothing may follow it. It reports as an [*Error] what
// [Check] finds, a name that is not, letter by letter, one of the struct's, and a null in
// a map. Other errors are those of [json.Unmarshal].
func Decode(text []byte, into any) error {
	if err := check(text, reflect.TypeOf(into)); err != nil {
		return err
	}
	return json.Unmarshal(text, into) //nolint:wrapcheck // its types say what is wrong
}

func check(text []byte, t reflect.Type) error {
	if !json.Valid(text) {
		return nil
	}
	r := &reader{text: text, tokens: json.NewDecoder(bytes.NewReader(text))}
	r.tokens.UseNumber()
	if t = decoded(t); t != nil && t.Kind() == reflect.Map {
		r.depth = plain // Its members are values, none of which may be left out by null.
	}
	if found := r.value(t); found != nil {
		return found
	}
	return nil
}

// reader reads valid JSON.
type reader struct {
	text   []byte
	tokens *json.Decoder
	depth  int // of objects and lists around what is read
}

// plain is the depth of the members of an object, where null says that there is none.
const plain = 1

// next returns the next token, and the text up to its end, with what stands before it.
func (r *reader) next() (json.Token, []byte) {
	start := r.tokens.InputOffset()
	token, _ := r.tokens.Token() // It is valid.
	return token, r.text[start:r.tokens.InputOffset()]
}

// value reads one that is decoded into the type; nil is any.
func (r *reader) value(t reflect.Type) *Error {
	t = decoded(t)
	token, raw := r.next()
	switch token {
	case json.Delim('{'):
		return r.object(t)
	case json.Delim('['):
		return r.array(t)
	case nil:
		if r.depth > plain {
			return &Error{Text: "is null: leave it out"}
		}
		return nil
	default:
		return half(raw)
	}
}

func (r *reader) object(t reflect.Type) *Error {
	r.depth++
	known := members(t)
	seen := map[string]bool{}
	for r.tokens.More() {
		token, raw := r.next()
		name, _ := token.(string)
		found := half(raw)
		below, isKnown := known.of(name)
		switch {
		case found != nil:
		case !isKnown:
			found = &Error{Text: "is unknown" + known.like(name)}
		case seen[name]:
			found = &Error{Text: "is given twice"}
		default:
			seen[name] = true
			found = r.value(below)
		}
		if found != nil {
			return found.below(printable(name))
		}
	}
	r.next()
	r.depth--
	return nil
}

func (r *reader) array(t reflect.Type) *Error {
	r.depth++
	if t != nil && t.Kind() == reflect.Slice {
		t = t.Elem()
	} else {
		t = nil
	}
	for i := 0; r.tokens.More(); i++ {
		if found := r.value(t); found != nil {
			return found.below("[" + strconv.Itoa(i) + "]")
		}
	}
	r.next()
	r.depth--
	return nil
}

// below adds where the field is.
func (e *Error) below(name string) *Error {
	if e.Field != "" && e.Field[0] != '[' {
		name += "."
	}
	e.Field = name + e.Field
	return e
}

// printable is a name as an error shows it.
func printable(name string) string {
	const most = 64
	isPlain := name != "" && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
	if isPlain && len(name) <= most {
		return name
	}
	return strconv.Quote(name[:min(len(name), most)])
}

// half reports whether a string has a half of a surrogate pair. Backslashes are in strings alone.
func half(raw []byte) *Error {
	const (
		escape    = len(`\uxxxx`)
		highFirst = 0xd800
		lowFirst  = 0xdc00
		lowLast   = 0xdfff
	)
	unit := func(at int) uint64 { // 0 where there is no escaped unit
		if at+escape >= len(raw) || raw[at] != '\\' || raw[at+1] != 'u' {
			return 0
		}
		n, _ := strconv.ParseUint(string(raw[at+2:at+escape]), 16, 16)
		return n
	}
	for at := 0; ; at++ {
		next := bytes.IndexByte(raw[at:], '\\')
		if next < 0 {
			return nil
		}
		at += next
		switch n := unit(at); {
		case n < highFirst || n > lowLast:
			at++ // What is escaped may be a backslash.
		case n < lowFirst && unit(at+escape) >= lowFirst && unit(at+escape) <= lowLast:
			at += 2*escape - 1
		default:
			return &Error{Text: fmt.Sprintf(`has \u%04x, half of a surrogate pair: give a whole one, or UTF-8`, n)}
		}
	}
}
