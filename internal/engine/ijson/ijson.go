// Package ijson finds faults in JSON that the decoder of the standard library silently
// repairs: a repeated name, of which it keeps the last value; a name in different
// capitals, which it accepts; half of a surrogate pair, which it replaces by U+FFFD; and
// a null in a list or map of strings, which becomes an empty string. RFC 7493 (I-JSON)
// forbids the first and the third.
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

// Error says which field is wrong, and how.
type Error struct {
	// Field is the path of the field, such as messages[2].headers.a; empty if the text
	// is no object. Long or unprintable names are quoted and cut.
	Field string
	// Text completes the sentence that begins with the field. It shows no value except half of a pair.
	Text string
}

func (e *Error) Error() string { return strings.TrimSpace(e.Field + " " + e.Text) }

// Check returns the first of these faults as an [*Error], except for capitals. It says
// nothing of text that is not valid JSON. A null in the outermost object counts as left
// out.
func Check(text []byte) error { return check(text, nil) }

// Decode decodes one value, after which nothing may follow. It returns an [*Error] for
// what [Check] finds, for a name that is not exactly one of the struct's, and for a null
// in a map. Other errors are those of [json.Unmarshal].
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
		r.depth = plain // Its members are values, none of which may be null.
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
	depth  int // of objects and lists around the current value
}

// plain is the depth of the members of an object, where null means absent.
const plain = 1

// next returns the next token, and the text up to its end, including what precedes it.
func (r *reader) next() (json.Token, []byte) {
	start := r.tokens.InputOffset()
	token, _ := r.tokens.Token() // It is valid.
	return token, r.text[start:r.tokens.InputOffset()]
}

// value reads a value that is decoded into the type; nil means any.
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

// below adds the enclosing field.
func (e *Error) below(name string) *Error {
	if e.Field != "" && e.Field[0] != '[' {
		name += "."
	}
	e.Field = name + e.Field
	return e
}

// printable returns a name in the form that errors show.
func printable(name string) string {
	const most = 64
	isPlain := name != "" && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
	if isPlain && len(name) <= most {
		return name
	}
	return strconv.Quote(name[:min(len(name), most)])
}

// half finds half of a surrogate pair in a string. Backslashes occur only in strings.
func half(raw []byte) *Error {
	const (
		escape    = len(`\uxxxx`)
		highFirst = 0xd800
		lowFirst  = 0xdc00
		lowLast   = 0xdfff
	)
	unit := func(at int) uint64 { // 0 if there is no escaped unit
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
