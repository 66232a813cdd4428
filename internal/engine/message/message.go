// Package message holds the nouns that every other package shares: the message
// itself, its identity, the rules that it must satisfy, and the format in which
// Redis stores it.
//
// It imports nothing of ours, talks to nothing, and knows no clock. The SDK,
// the store, the poller and the sinks all speak in its types.
package message

import (
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
	// Headers are the producer's own headers, which pass through unchanged, and
	// [HeaderUID], [HeaderTags], [HeaderLate] and [HeaderSealed] where the message has such.
	Headers map[string]string
	// Body is published byte for byte; where it is sealed, what was sealed.
	Body []byte

	// Queue is the delay queue that the message waited in.
	Queue string
	// DueAt is the earliest instant of publishing, by Redis' clock, in whole milliseconds.
	DueAt time.Time
	// ScheduledAt is when Redis first accepted the message.
	ScheduledAt time.Time
	// Attempt is 1 + how often publishing may have begun before.
	Attempt int
	// Token identifies the schedule or reschedule that is in force: printable
	// ASCII of fixed width. (ID, Token) never repeats while a broker remembers it.
	Token string
}

// Header is one header of a published message.
type Header struct {
	Name, Value string
}

// Names of the headers that the bridge adds to every published message.
const (
	// HeaderUID is also stored, where a reschedule has taken the token that it says.
	HeaderUID         = "delay-uid"
	HeaderID          = "delay-id"
	HeaderQueue       = "delay-queue"
	HeaderDueAt       = "delay-due-at"
	HeaderScheduledAt = "delay-scheduled-at"
	HeaderAttempt     = "delay-attempt"
)

// TimeFormat is how times appear in headers: RFC 3339 in UTC with three decimals.
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
		if name != HeaderUID {
			headers = append(headers, Header{name, value})
		}
	}
	slices.SortFunc(headers[before:], func(a, b Header) int { return strings.Compare(a.Name, b.Name) })
	text := make([]byte, 0, 2*len(TimeFormat))
	text = appendTime(text, m.DueAt)
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

// appendTime appends a time in [TimeFormat]. The library's formatting would be a
// quarter of what publishing a message costs.
func appendTime(b []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	if year < 1000 || year > 9999 {
		return t.AppendFormat(b, TimeFormat)
	}
	hour, minute, second := t.Clock()
	b = append(appendTwo(appendTwo(b, year/100), year%100), '-')
	b = append(appendTwo(b, int(month)), '-')
	b = append(appendTwo(b, day), 'T')
	b = append(appendTwo(b, hour), ':')
	b = append(appendTwo(b, minute), ':')
	b = append(appendTwo(b, second), '.')
	millis := t.Nanosecond() / int(time.Millisecond)
	return append(appendTwo(append(b, byte('0'+millis/100)), millis%100), 'Z')
}

func appendTwo(b []byte, n int) []byte { return append(b, byte('0'+n/10), byte('0'+n%10)) }

// Size is what the size limit counts: id, key, topic, headers and body, in bytes.
func (m *Message) Size() int {
	size := len(m.ID) + len(m.Key) + len(m.Topic) + len(m.Body)
	for name, value := range m.Headers {
		size += len(name) + len(value)
	}
	return size
}
