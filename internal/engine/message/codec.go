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
//	          the tags first, then that of the UID: each string behind its length,
//	          numbers as unsigned varints
//	rest      body
//
// Of a message whose body is sealed, the last header is [HeaderSealed], with [sealMark]
// in the place of its name. A bridge that knows no seals takes the mark for a length
// beyond the message's end, and so for a message that it cannot decode: it makes it a
// dead letter, where a clear one would be published.
//
// ID and Key are not in it: they are the message's name in Redis, see [Member].
// The scripts read the fixed part by position, so a later version keeps it, and
// the tags behind the topic. A reschedule puts the token that it ends in front of the
// other headers, as the UID, unless there is one.
const (
	// FormatVersion is the version that is written.
	FormatVersion = "1"
	// TokenLength is the length of a token in bytes.
	TokenLength = 16

	stampLength = 13
	fixedLength = len(FormatVersion) + stampLength + TokenLength

	// sealMark is the varint of 2^28-1, as long as no string of a message is.
	sealMark = "\xff\xff\xff\x7f"
)

// Errors of stored messages that cannot be read; such a message goes to the
// dead letters alone.
var (
	ErrMissingBody   = errors.New("missing body")
	ErrUndecodable   = errors.New("undecodable message")
	errCutShort      = fmt.Errorf("%w: cut short", ErrUndecodable)
	errFormatVersion = fmt.Errorf("%w: unknown format version", ErrUndecodable)
)

// Member is the message's name in Redis: the ID, or Key, NUL and ID where there is a Key.
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

// Encode returns the token and the part of the stored format behind it; Redis
// puts version and scheduled-at in front.
func Encode(token string, m *Message) []byte {
	size := TokenLength + len(m.Body) + len(m.Topic) + 2*binary.MaxVarintLen32
	for name, value := range m.Headers {
		size += len(name) + len(value) + 2*binary.MaxVarintLen32
	}
	b := make([]byte, 0, size)
	b = append(b, token...)
	b = appendString(b, m.Topic)
	b = binary.AppendUvarint(b, uint64(len(m.Headers)))
	if len(m.Headers) > 0 { // Sorting none allocates.
		names := slices.Sorted(maps.Keys(m.Headers))
		for _, first := range []string{HeaderUID, HeaderTags} {
			if at := slices.Index(names, first); at > 0 {
				names = slices.Insert(slices.Delete(names, at, at+1), 0, first)
			}
		}
		for _, name := range names {
			if name != HeaderSealed {
				b = appendString(b, name)
				b = appendString(b, m.Headers[name])
			}
		}
		if id, isSealed := m.SealedBy(); isSealed {
			b = appendString(append(b, sealMark...), id)
		}
	}
	return append(b, m.Body...)
}

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// Decode fills topic, headers, body, scheduled-at and token from the stored
// format. Its errors are [ErrMissingBody] and [ErrUndecodable].
func (m *Message) Decode(stored string) error {
	if stored == "" {
		return ErrMissingBody
	}
	if len(stored) < fixedLength {
		return errCutShort
	}
	if stored[:1] != FormatVersion {
		return errFormatVersion
	}
	stamp, err := strconv.ParseInt(stored[1:1+stampLength], 10, 64)
	if err != nil {
		return fmt.Errorf("%w: scheduled-at", ErrUndecodable)
	}
	m.ScheduledAt = time.UnixMilli(stamp)
	m.Token = stored[1+stampLength : fixedLength]
	return m.decodeRest(stored[fixedLength:])
}

func (m *Message) decodeRest(rest string) error {
	var ok bool
	if m.Topic, rest, ok = cutString(rest); !ok {
		return errCutShort
	}
	count, rest, ok := cutUvarint(rest)
	if !ok || count > uint64(len(rest)) {
		return errCutShort
	}
	if count > 0 {
		m.Headers = make(map[string]string, count)
	}
	for left := count; left > 0; left-- {
		var name, value string
		if name, rest, ok = cutName(rest, left == 1); !ok {
			return errCutShort
		}
		if value, rest, ok = cutString(rest); !ok {
			return errCutShort
		}
		m.Headers[name] = value
	}
	m.Body = []byte(rest)
	return nil
}

// cutName cuts the name of a header, for which the mark stands as the last one.
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
	for i := 0; i < len(s) && i < binary.MaxVarintLen64; i++ {
		value |= uint64(s[i]&0x7f) << (7 * i)
		if s[i] < 0x80 {
			return value, s[i+1:], true
		}
	}
	return 0, "", false
}

// ParseClaimToken is the inverse of [ClaimToken.String]; what is none is the zero value.
func ParseClaimToken(s string) ClaimToken {
	at := strings.LastIndexByte(s, '|')
	number, err := strconv.ParseUint(s[at+1:], 10, 64)
	if at < 0 || err != nil {
		return ClaimToken{}
	}
	return ClaimToken{Instance: s[:at], Number: number}
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

// DeadLetter is a message that will not be tried again until somebody redrives it.
type DeadLetter struct {
	Message
	// Member is its identity in Redis, see [Member].
	Member string
	// Reason says why it died, for people.
	Reason string
	// Attempts is what it went through.
	Attempts Attempts
	// DiedAt is when it was moved here, by Redis' clock.
	DiedAt time.Time
	// Err is set where the stored message cannot be decoded.
	Err error
}

// DecodeDeadLetter reads a dead letter: "due_ms:attempts:length of reason:",
// reason and the stored message.
func DecodeDeadLetter(member, stored string) DeadLetter {
	letter := DeadLetter{Member: member}
	letter.ID, letter.Key = SplitMember(member)
	due, counts, reason, rest, ok := cutLetter(stored)
	dueMs, errDue := strconv.ParseInt(due, 10, 64)
	if !ok || errDue != nil {
		letter.Err = fmt.Errorf("%w: dead letter", ErrUndecodable)
		return letter
	}
	letter.DueAt = time.UnixMilli(dueMs)
	letter.Reason = reason
	if letter.Attempts, letter.Err = ParseAttempts(counts); letter.Err == nil {
		letter.Err = letter.Decode(rest)
	}
	letter.Attempt = letter.Attempts.Begun + 1
	return letter
}

// StoredOf is the stored message of a dead letter; empty where there is none.
func StoredOf(letter string) string {
	_, _, _, stored, _ := cutLetter(letter)
	return stored
}

func cutLetter(letter string) (due, counts, reason, stored string, ok bool) {
	due, rest, _ := strings.Cut(letter, ":")
	counts, rest, _ = strings.Cut(rest, ":")
	length, rest, found := strings.Cut(rest, ":")
	n, err := strconv.Atoi(length)
	if !found || err != nil || n < 0 || n > len(rest) {
		return "", "", "", "", false
	}
	return due, counts, rest[:n], rest[n:], true
}
