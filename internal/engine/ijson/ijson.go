// Package ijson finds in JSON what the decoder of the standard library takes without a
// word and changes: a name that is given twice, of which it keeps the last value, half
// of a surrogate pair, in the place of which it puts U+FFFD, and a null in a list or
// map of strings, of which it makes an empty one. RFC 7493 (I-JSON) forbids the first two.
package ijson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Error says what is wrong with which field.
type Error struct {
	// Field is the way to it, as messages[2].headers.a; empty where the text is no object.
	Field string
	// Text is the sentence that the field begins. It shows no value but half of a pair.
	Text string
}

func (e *Error) Error() string { return strings.TrimSpace(e.Field + " " + e.Text) }

// Check reports the first of these faults, as an [*Error]. The text must be valid JSON:
// of another one nothing is said.
func Check(text []byte) error {
	if !json.Valid(text) {
		return nil
	}
	if found := (&reader{rest: text}).value(); found != nil {
		return found
	}
	return nil
}

// reader reads valid JSON.
type reader struct {
	rest  []byte
	depth int // of objects and lists around what is read
}

// plain is the depth of the members of an object, where null says that there is none.
const plain = 1

// next skips spaces and what stands between values, and returns the byte behind them.
func (r *reader) next() byte {
	r.rest = bytes.TrimLeft(r.rest, " \t\r\n,:")
	return r.rest[0]
}

func (r *reader) value() *Error {
	switch r.next() {
	case '{':
		return r.object()
	case '[':
		return r.array()
	case '"':
		return half(r.text())
	default:
		end := bytes.IndexAny(r.rest, ",]} \t\r\n")
		if end < 0 {
			end = len(r.rest)
		}
		value := r.rest[:end]
		if r.rest = r.rest[end:]; r.depth > plain && string(value) == "null" {
			return &Error{Text: "is null: leave it out"}
		}
		return nil
	}
}

func (r *reader) object() *Error {
	r.rest = r.rest[1:]
	r.depth++
	seen := map[string]bool{}
	for r.next() != '}' {
		raw := r.text()
		name, found := unquote(raw), half(raw)
		switch {
		case found != nil:
		case seen[name]:
			found = &Error{Text: "is given twice"}
		default:
			seen[name] = true
			found = r.value()
		}
		if found != nil {
			return found.below(name)
		}
	}
	r.rest = r.rest[1:]
	r.depth--
	return nil
}

func (r *reader) array() *Error {
	r.rest = r.rest[1:]
	r.depth++
	for i := 0; r.next() != ']'; i++ {
		if found := r.value(); found != nil {
			return found.below("[" + strconv.Itoa(i) + "]")
		}
	}
	r.rest = r.rest[1:]
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

// text cuts a string off, and returns it with its quotes.
func (r *reader) text() []byte {
	end := 1
	for r.rest[end] != '"' {
		if r.rest[end] == '\\' {
			end++
		}
		end++
	}
	raw := r.rest[:end+1]
	r.rest = r.rest[end+1:]
	return raw
}

func unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var name string
	_ = json.Unmarshal(raw, &name) // It is valid.
	return name
}

// half reports whether a string has a half of a surrogate pair.
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
