package scripts

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrReply is returned for a script's reply that has the wrong form.
var ErrReply = errors.New("unexpected reply of script")

// Reply reads the nested arrays of a script's answer. The first value of an
// unexpected type is remembered, and makes the whole answer an error.
type Reply struct {
	Values []any
	Err    error
}

// NewReply returns the reply to a command.
func NewReply(cmd *redis.Cmd) *Reply {
	values, err := cmd.Slice()
	return &Reply{Values: values, Err: err}
}

// Int is the i-th value.
func (r *Reply) Int(i int) int64 {
	if r.Err == nil && i < len(r.Values) {
		if n, ok := r.Values[i].(int64); ok {
			return n
		}
	}
	r.fail(i, "integer")
	return 0
}

// Text is the i-th value; a nil is the empty string.
func (r *Reply) Text(i int) string {
	if r.Err == nil && i < len(r.Values) {
		switch s := r.Values[i].(type) {
		case string:
			return s
		case nil:
			return ""
		}
	}
	r.fail(i, "string")
	return ""
}

// Texts are all values.
func (r *Reply) Texts() []string {
	texts := make([]string, len(r.Values))
	for i := range texts {
		texts[i] = r.Text(i)
	}
	return texts
}

// NextPage returns how many names the next page of a scan should have, after a page of that many
// names for which Redis read that many bytes.
func NextPage(names int, bytes, mostBytes int64, most int) int {
	switch {
	case bytes > mostBytes:
		return max(1, names/4)
	case bytes*4 <= mostBytes:
		return min(4*names, most)
	}
	return names
}

// List is the i-th value, whose own values are read alike.
func (r *Reply) List(i int) *Reply {
	if r.Err == nil && i < len(r.Values) {
		if list, ok := r.Values[i].([]any); ok {
			return &Reply{Values: list}
		}
	}
	r.fail(i, "list")
	return &Reply{Err: r.Err}
}

func (r *Reply) fail(i int, want string) {
	if r.Err == nil {
		r.Err = fmt.Errorf("%w: value %d of %d is no %s", ErrReply, i, len(r.Values), want)
	}
}

// CutInt reads a decimal number and the colon after it, as the scripts pack them.
func CutInt(s string) (n int64, rest string, ok bool) {
	for i := 0; i < len(s); i++ {
		if s[i] == ':' {
			n, err := strconv.ParseInt(s[:i], 10, 64)
			return n, s[i+1:], err == nil
		}
	}
	return 0, "", false
}

var errPacked = fmt.Errorf("%w: packed claim", ErrReply)

// CutPacked reads the first message of a packed claim: "length:score:member".
func CutPacked(packed string) (score int64, member, rest string, err error) {
	length, rest, ok := CutInt(packed)
	if !ok {
		return 0, "", "", errPacked
	}
	score, rest, ok = CutInt(rest)
	if !ok || length < 0 || length > int64(len(rest)) {
		return 0, "", "", errPacked
	}
	return score, rest[:length], rest[length:], nil
}

// EachPacked calls do for each message of a claim.
func EachPacked(packed string, do func(score int64, member string)) error {
	for packed != "" {
		score, member, rest, err := CutPacked(packed)
		if err != nil {
			return err
		}
		do(score, member)
		packed = rest
	}
	return nil
}

// Flag converts a bool for the scripts.
func Flag(set bool) int {
	if set {
		return 1
	}
	return 0
}

// CutLedger reads an entry of a ledger: "p<member>", "c<member>" or "d<due_ms>:<member>",
// where "C" for "c", or a plus in front of due_ms, says that a copy may be out.
func CutLedger(entry string) (what byte, dueMs int64, maybe bool, member string) {
	if entry == "" {
		return 0, 0, false, ""
	}
	what, member = entry[0], entry[1:]
	if what == 'C' {
		return 'c', 0, true, member
	}
	if what == 'd' {
		if ms, rest, ok := CutInt(member); ok {
			dueMs, maybe, member = ms, member[0] == '+', rest
		}
	}
	return what, dueMs, maybe, member
}

// CutRoute decodes a slot's entry in the key routes: "since_ms length:route reason".
func CutRoute(entry string) (since time.Time, route, reason string) {
	text, rest, _ := strings.Cut(entry, " ")
	if ms, err := strconv.ParseInt(text, 10, 64); err == nil {
		since = time.UnixMilli(ms)
	}
	if length, names, ok := CutInt(rest); ok && length >= 0 && length <= int64(len(names)) {
		route, reason = names[:length], names[length:]
	}
	return since, route, reason
}
