package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The stored format, version 1:
//
//	1 byte    version
//	13 bytes  scheduled-at, milliseconds since 1970, decimal (written by Redis)
//	16 bytes  token in force (rewritten by a reschedule)
//	          topic, header count, then name and value of each header, that of
//	          the tags first, then those of the UID and of the first schedule: each string
//	          behind its length, numbers as unsigned varints
//	rest      body
//
// If the body is sealed, the last header is [HeaderSealed], with [sealMark] in place of
// its name. A bridge that knows no seals takes the mark for a length beyond the
// message's end, cannot decode the message, and sends it to the dead letters instead of
// publishing the sealed body.
//
// ID and Key are not in it: they are the message's name in Redis, see [Member]. The
// scripts read the fixed part by position, so later versions must keep it, and the
// tags after the topic. A reschedule adds the token that it ends as the UID before
// the other headers, unless there is a UID.
const (
	// FormatVersion is the version that is written.
	FormatVersion = "1"
	// TokenLength is the length of a token in bytes.
	TokenLength = 16

	stampLength = 13
	fixedLength = len(FormatVersion) + stampLength + TokenLength

	// sealMark is the varint of 2^28-1, a length that no string of a message has.
	sealMark = "\xff\xff\xff\x7f"
)

// Errors of unreadable stored messages. Only the message itself goes to the
// dead letters.
var (
	ErrMissingBody   = errors.New("missing body")
	ErrUndecodable   = errors.New("undecodable message")
	errCutShort      = fmt.Errorf("%w: cut short", ErrUndecodable)
	errFormatVersion = fmt.Errorf("%w: unknown format version", ErrUndecodable)
)

// Member is the message's name in Redis: the ID, or Key, NUL and ID if there is a Key.
func Member(id, key string) string {
	if key == "" {
		return id
	}
	return key + "\x00" + id
}

// SplitMember is the inverse of [Member].
func SplitMember(member string) (id, key string) {
	if key, id, found := strings.Cut(member, "\x00"); found {
		return id, key
	}
	return member, ""
}

// Encode returns the token and the part of the stored format after it; Redis
// adds version and scheduled-at before it.
func Encode(token string, m *Message) []byte {
	b := make([]byte, 0, TokenLength+m.Size()+(1+len(m.Headers))*2*binary.MaxVarintLen32)
	b = appendString(append(b, token...), m.Topic)
	b = binary.AppendUvarint(b, uint64(len(m.Headers)))
	if len(m.Headers) > 0 {
		b = m.appendStored(b)
	}
	return append(b, m.Body...)
}

// appendStored appends the headers in the order of the stored format.
func (m *Message) appendStored(b []byte) []byte {
	names := slices.Sorted(maps.Keys(m.Headers))
	for _, first := range []string{HeaderFirstAt, HeaderUID, HeaderTags} {
		if at := slices.Index(names, first); at > 0 {
			names = slices.Insert(slices.Delete(names, at, at+1), 0, first)
		}
	}
	for _, name := range names {
		if name != HeaderSealed {
			b = appendString(appendString(b, name), m.Headers[name])
		}
	}
	if id, isSealed := m.SealedBy(); isSealed {
		b = appendString(append(b, sealMark...), id)
	}
	return b
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// Decode fills topic, headers, body, scheduled-at and token from the stored format.
// Its errors are [ErrMissingBody] and [ErrUndecodable]; the fields before the
// unreadable part are filled in all the same.
func (m *Message) Decode(stored string) error {
	switch {
	case stored == "":
		return ErrMissingBody
	case len(stored) < fixedLength:
		return errCutShort
	case stored[:1] != FormatVersion:
		return errFormatVersion
	}
	stamp, err := strconv.ParseInt(stored[1:1+stampLength], 10, 64)
	if err != nil {
		return fmt.Errorf("%w: scheduled-at", ErrUndecodable)
	}
	m.ScheduledAt, m.Token = time.UnixMilli(stamp), stored[1+stampLength:fixedLength]
	topic, rest, isTopic := cutString(stored[fixedLength:])
	m.Topic = topic
	headers, rest, isCount := cutUvarint(rest)
	if !isTopic || !isCount || headers > uint64(len(rest)) {
		return errCutShort
	}
	if headers > 0 {
		rest, err = m.decodeHeaders(int(headers), rest) //nolint:gosec // not more than a string's length
	}
	if err == nil {
		m.Body = []byte(rest)
	}
	return err
}

func (m *Message) decodeHeaders(count int, stored string) (rest string, err error) {
	m.Headers = make(map[string]string, count)
	for left := count; left > 0; left-- {
		name, afterName, isName := cutName(stored, left == 1)
		value, afterValue, isValue := cutString(afterName)
		if !isName || !isValue {
			return "", errCutShort
		}
		m.Headers[name], stored = value, afterValue
	}
	return stored, nil
}

// cutName cuts the name of a header; in the last header, the mark stands for it.
func cutName(s string, isLast bool) (name, rest string, ok bool) {
	if rest, isMark := strings.CutPrefix(s, sealMark); isMark && isLast {
		return HeaderSealed, rest, true
	}
	return cutString(s)
}

func cutString(s string) (value, rest string, ok bool) {
	length, rest, ok := cutUvarint(s)
	if !ok || length > uint64(len(rest)) {
		return "", "", false
	}
	return rest[:length], rest[length:], true
}

func cutUvarint(s string) (value uint64, rest string, ok bool) {
	value, length := binary.Uvarint([]byte(s[:min(len(s), binary.MaxVarintLen64)]))
	return value, s[max(length, 0):], length > 0
}

// A waiting message stands in its shard's order at a score, which Redis keeps
// as a float of 53 bits. The upper 11 are the slot that it is parked in, 0 if
// it is not parked; the lower 42 are milliseconds since 1970, up to the year
// 2109. So all parked messages come after all others, slot by slot, and in due
// order within a slot.
const slotSpan = int64(1) << 42

// ParkedFrom is the lowest score of a message that is parked.
const ParkedFrom = slotSpan

// ParkedScore returns the score of a message with that due time in the slot, 1
// to [MaxSlot]. A due time before 1970 becomes 1970.
func ParkedScore(slot int, due time.Time) int64 {
	return int64(slot)*slotSpan + min(max(due.UnixMilli(), 0), slotSpan-1)
}

// SplitScore returns the slot in a score, 0 if the message is not parked, and
// the instant in milliseconds since 1970.
func SplitScore(score int64) (slot int, ms int64) {
	return int(score / slotSpan), score % slotSpan
}

// String is the counts as Redis stores them.
func (a Attempts) String() string {
	return fmt.Sprintf("%d %d %d %d", a.Failures, a.Begun, a.MaybeOut, a.Unknowns)
}

// ParseAttempts is the inverse of String; the empty string is the zero value.
func ParseAttempts(s string) (Attempts, error) {
	var a Attempts
	if s == "" {
		return a, nil
	}
	if _, err := fmt.Sscanf(s, "%d %d %d %d", &a.Failures, &a.Begun, &a.MaybeOut, &a.Unknowns); err != nil {
		return a, fmt.Errorf("%w: attempts %q", ErrUndecodable, s)
	}
	return a, nil
}

// attemptCounts is how many numbers [Attempts.String] has.
const attemptCounts = 4

// History is what Redis stores about the earlier attempts of a message.
type History struct {
	Attempts Attempts
	// promised is the promised due time, if the score does not contain it.
	promised time.Time
}

// NewHistory returns the history of a message whose score does not contain its
// promised due time, like that of a retry.
func NewHistory(a Attempts, promised time.Time) History {
	return History{Attempts: a, promised: promised}
}

// String is the history as Redis stores it: the counts, followed by the
// promised due time in milliseconds if the score does not contain it.
func (h History) String() string {
	if h.promised.IsZero() {
		return h.Attempts.String()
	}
	return h.Attempts.String() + " " + strconv.FormatInt(h.promised.UnixMilli(), 10)
}

// ParseHistory is the inverse of [History.String]; the empty string is the
// history of a message without earlier attempts.
func ParseHistory(s string) (h History, err error) {
	counts := s
	if strings.Count(s, " ") == attemptCounts {
		at := strings.LastIndexByte(s, ' ')
		ms, err := strconv.ParseInt(s[at+1:], 10, 64)
		if err != nil {
			return h, fmt.Errorf("%w: attempts %q", ErrUndecodable, s)
		}
		counts, h.promised = s[:at], time.UnixMilli(ms)
	}
	h.Attempts, err = ParseAttempts(counts)
	return h, err
}

// Promised returns the due time that the producer was promised, for a message
// at that score.
func (h History) Promised(score int64) time.Time {
	if !h.promised.IsZero() {
		return h.promised
	}
	_, ms := SplitScore(score)
	return time.UnixMilli(ms)
}
