// Package message holds the types that all other packages share: the message,
// its identity, its limits, and the format in which Redis stores it.
//
// It imports none of our packages, does no I/O, and reads no clock. The SDK,
// the store, the poller and the sinks all use its types.
package message

import (
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Message is one delayed message. Producers fill the first group of fields, the
// store the second; sinks see both.
type Message struct {
	// ID names the message within its Key: 1 to 255 bytes.
	ID string
	// Key, 0 to 255 bytes, groups messages that must be published in due order.
	Key string
	// Topic is where the sink publishes: a Kafka topic, a RabbitMQ routing key, a NATS subject.
	Topic string
	// Headers are the producer's own headers, which pass through unchanged, and [HeaderUID],
	// [HeaderTags], [HeaderLate], [HeaderFirstAt], [HeaderSealed] and [HeaderRecurring] if the message has them.
	Headers map[string]string
	// Body is published byte for byte. If it is sealed, it is decrypted before.
	Body []byte

	// Queue is the delay queue that the message waited in.
	Queue string
	// DueAt is the earliest instant of publishing, by Redis' clock, in whole milliseconds.
	DueAt time.Time
	// ScheduledAt is when Redis first accepted the message.
	ScheduledAt time.Time
	// Attempt is 1 plus the number of earlier attempts that may have begun publishing.
	Attempt int
	// Minimal is whether the bridge adds only those headers that a consumer cannot do without.
	Minimal bool
	// Token identifies the schedule or reschedule that is in force: printable
	// ASCII of fixed width. (ID, Token) never repeats while a broker remembers it.
	Token string
}

// Header is one header of a published message.
type Header struct {
	Name, Value string
}

// Names of the headers that the bridge adds to every published message; to a minimal one only HeaderUID and
// HeaderDueAt, and HeaderAttempt where it is more than 1.
const (
	// HeaderUID is also stored, if a reschedule has replaced the token that it contains.
	HeaderUID         = "delay-uid"
	HeaderID          = "delay-id"
	HeaderQueue       = "delay-queue"
	HeaderDueAt       = "delay-due-at"
	HeaderScheduledAt = "delay-scheduled-at"
	HeaderAttempt     = "delay-attempt"
)

// HeaderRecurring has the name of the recurring schedule, in each message that is a firing of one. It is
// stored with the message.
const HeaderRecurring = "delay-recurring"

// TimeFormat is the format of times in headers: RFC 3339 in UTC with three decimals.
const TimeFormat = "2006-01-02T15:04:05.000Z"

// PublishedHeaders returns the headers of the published message: the
// producer's own and its tags, sorted by name, then those that the bridge adds.
func (m *Message) PublishedHeaders() []Header {
	return m.AppendHeaders(make([]Header, 0, len(m.Headers)+6))
}

// AppendHeaders appends the published message's headers, as [Message.PublishedHeaders]
// returns them.
func (m *Message) AppendHeaders(headers []Header) []Header {
	before := len(headers)
	for name, value := range m.Headers {
		switch name {
		case HeaderUID:
			continue
		case HeaderFirstAt:
			value = firstAt(value)
		}
		headers = append(headers, Header{name, value})
	}
	slices.SortFunc(headers[before:], func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	if m.Minimal {
		if m.Attempt > 1 {
			headers = append(headers, Header{HeaderAttempt, strconv.Itoa(m.Attempt)})
		}
		due := appendTime(make([]byte, 0, len(TimeFormat)), m.DueAt)
		return append(headers, Header{HeaderDueAt, string(due)}, Header{HeaderUID, m.UID()})
	}
	text := appendTime(make([]byte, 0, 2*len(TimeFormat)), m.DueAt)
	due := len(text)
	times := string(appendTime(text, m.ScheduledAt)) // one allocation for both
	return append(headers,
		Header{HeaderID, m.ID},
		Header{HeaderQueue, m.Queue},
		Header{HeaderDueAt, times[:due]},
		Header{HeaderScheduledAt, times[due:]},
		Header{HeaderAttempt, strconv.Itoa(m.Attempt)},
		Header{HeaderUID, m.UID()},
	)
}

// appendTime appends a time in [TimeFormat]. The standard library is fast only for RFC 3339 in
// whole seconds; any other format would take a quarter of the cost of publishing a message.
func appendTime(b []byte, t time.Time) []byte {
	b = t.UTC().AppendFormat(b, time.RFC3339)
	z := len(b) - 1
	b = strconv.AppendInt(b[:z], int64(1000+t.Nanosecond()/int(time.Millisecond)), 10)
	b[z] = '.' // where the 1 of the 1000 is
	return append(b, 'Z')
}

// Size returns the size to which the limit applies: id, key, topic, headers and body, in bytes.
func (m *Message) Size() int {
	size := len(m.ID) + len(m.Key) + len(m.Topic) + len(m.Body)
	for name, value := range m.Headers {
		size += len(name) + len(value)
	}
	return size
}

// UID identifies the message even if its ID is used again: all copies have the same UID,
// whatever the attempt, and each schedule makes a new one. It is the token of the schedule.
// A reschedule gives the message another token, and keeps the first in [HeaderUID]; so does
// the row of an outbox. For messages stored by an earlier version, it is the token that they
// had then.
func (m *Message) UID() string {
	if uid, isStored := m.Headers[HeaderUID]; isStored {
		return uid
	}
	return UIDOf(m.Token)
}

// UIDOf returns the form of a token in [HeaderUID]: unchanged, unless a row has a token
// that no header may hold.
func UIDOf(token string) string {
	for i := range len(token) {
		if token[i] <= ' ' || token[i] >= 0x7f {
			return hex.EncodeToString([]byte(token))
		}
	}
	return token
}

// OutboxMark begins the token of an outbox message, which has a row of a
// database or a compensation message, and which several writers may bring to
// Redis under that token.
const OutboxMark = "~"

// TracedMark begins the token of an outbox message without a row.
const TracedMark = OutboxMark + OutboxMark

// IsOutboxToken reports whether the token is that of an outbox message.
func IsOutboxToken(token string) bool {
	return len(token) == TokenLength && strings.HasPrefix(token, OutboxMark)
}

// IsRowToken reports whether the token is that of an outbox message with a row.
func IsRowToken(token string) bool {
	return IsOutboxToken(token) && !strings.HasPrefix(token, TracedMark)
}
