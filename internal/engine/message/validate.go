package message

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits on what a producer may schedule. They keep a message within the
// defaults of all brokers.
const (
	MaxIDLength      = 255
	MaxKeyLength     = 255
	MaxTopicLength   = 255 // bytes; a broker may take less
	MaxHeaders       = 64
	MaxHeaderName    = 255
	DefaultMaxSize   = 960 << 10 // bytes, see [Message.Size]
	MaxDelayYears    = 10
	reservedPrefix   = "delay-"
	reservedNATSName = "nats-"
)

// Validate checks every field except the due time against the limits. maxSize
// is the size limit in bytes. The error is an [*InvalidError].
func (m *Message) Validate(sink SinkType, maxSize int) error {
	if err := CheckIdentity(m.ID, m.Key); err != nil {
		return err
	}
	if err := CheckTopic(sink, m.Topic); err != nil {
		return err
	}
	if err := checkHeaders(sink, m.Headers); err != nil {
		return err
	}
	if size := m.Size(); size > maxSize {
		return &InvalidError{
			Field: "body", Value: fmt.Sprintf("%d bytes", len(m.Body)),
			Limit: fmt.Sprintf("id, key, topic, headers and body have %d bytes together, allowed are %d", size, maxSize),
		}
	}
	return nil
}

// CheckIdentity checks an ID and a Key.
func CheckIdentity(id, key string) error {
	if err := checkName("id", id, 1, MaxIDLength); err != nil {
		return err
	}
	return checkName("key", key, 0, MaxKeyLength)
}

// CheckTopic reports whether the broker could ever accept the topic. The SDK
// asks before it schedules, the sink again before it publishes. An unknown
// broker accepts any topic of 1 to 255 bytes of UTF-8 without control characters.
func CheckTopic(sink SinkType, topic string) error {
	rule := rules[sink]
	if err := checkLength("topic", topic, 1, cmp.Or(rule.longest, MaxTopicLength)); err != nil {
		return err
	}
	limit := ""
	if !utf8.ValidString(topic) || hasControl(topic) {
		limit = "must be UTF-8 without control characters"
	}
	if rule.topic != nil {
		limit = cmp.Or(rule.topic(topic), limit)
	}
	if limit != "" {
		return &InvalidError{Field: "topic", Value: topic, Limit: limit}
	}
	return nil
}

func checkName(field, value string, least, most int) error {
	if err := checkLength(field, value, least, most); err != nil {
		return err
	}
	if !utf8.ValidString(value) || hasControl(value) || value != strings.TrimSpace(value) {
		return &InvalidError{Field: field, Value: value, Limit: "must be UTF-8 without control characters or outer spaces"}
	}
	return nil
}

// checkHeaders checks the producer's own headers, and those of tags, late and seal.
func checkHeaders(sink SinkType, headers map[string]string) (err error) {
	own := 0
	for name, value := range headers {
		switch name {
		case HeaderTags:
			err = checkTags(strings.Split(value, tagSeparator))
		case HeaderLate:
			_, err = parseLate(value)
		case HeaderSealed:
			err = checkKeyID(value)
		case HeaderFirstAt:
			if value != noFirst { // Redis writes the time, later.
				err = reservedHeader(name)
			}
		default:
			own++
			err = checkHeader(sink, name, value)
		}
		if err != nil {
			return err
		}
	}
	if own > MaxHeaders {
		return &InvalidError{Field: "header", Value: fmt.Sprintf("%d headers", own), Limit: fmt.Sprintf("allowed are %d", MaxHeaders)}
	}
	return nil
}

// IsReserved reports whether a producer's header may not have that name.
func IsReserved(name string) bool {
	lower := strings.ToLower(name)
	return strings.HasPrefix(lower, reservedPrefix) || strings.HasPrefix(lower, reservedNATSName) || name == "CC" || name == "BCC"
}

func reservedHeader(name string) error {
	return &InvalidError{Field: "header", Value: name, Limit: "delay-*, nats-*, CC and BCC are reserved"}
}

func checkHeader(sink SinkType, name, value string) error {
	if err := checkLength("header", name, 1, MaxHeaderName); err != nil {
		return err
	}
	if err := CheckHeader(sink, name, value); err != nil {
		return err
	}
	if IsReserved(name) {
		return reservedHeader(name)
	}
	if value != strings.TrimSpace(value) {
		return badHeaderValue(name)
	}
	return nil
}

// CheckHeader reports whether the broker could ever accept the header of a message, be it
// the producer's own or the bridge's. The SDK asks before it schedules, some sinks again
// before they publish. The error is an [*InvalidError].
func CheckHeader(sink SinkType, name, value string) error {
	for _, c := range []byte(name) {
		if c <= ' ' || c >= 0x7f || c == ':' {
			return &InvalidError{Field: "header", Value: name, Limit: "a name is printable ASCII without colon and space"}
		}
	}
	rule := rules[sink]
	if strings.ContainsAny(name, rule.refused) {
		return &InvalidError{Field: "header", Value: name, Limit: "a name for " + string(sink) + " has none of " + rule.refused}
	}
	if rule.header != nil {
		if limit := rule.header(name); limit != "" {
			return &InvalidError{Field: "header", Value: name, Limit: limit}
		}
	}
	if rule.value > 0 && len(value) > rule.value {
		return &InvalidError{Field: "header", Value: name, Limit: fmt.Sprintf("its value has %d bytes, a value for %s at most %d", len(value), sink, rule.value)}
	}
	if !utf8.ValidString(value) || hasControl(strings.ReplaceAll(value, "\t", "")) {
		return badHeaderValue(name)
	}
	return nil
}

func badHeaderValue(name string) error {
	return &InvalidError{Field: "header", Value: name, Limit: "its value must be UTF-8 without control characters or outer spaces"}
}

// Topics are the topics that a queue accepts: names, in which * stands for any number of
// characters. An empty list accepts all.
type Topics []string

// Check returns an [*InvalidError] if the queue does not accept the topic.
func (t Topics) Check(topic string) error {
	if len(t) == 0 || slices.ContainsFunc(t, func(pattern string) bool { return matches(pattern, topic) }) {
		return nil
	}
	return &InvalidError{Field: "topic", Value: topic, Limit: "the queue takes only " + t.String()}
}

// String lists the topics for display, if there are many only the first.
func (t Topics) String() string {
	const shown = 8
	if len(t) > shown {
		return strings.Join(t[:shown], ", ") + ", …"
	}
	return strings.Join(t, ", ")
}

func matches(pattern, topic string) bool {
	first, rest, some := strings.Cut(pattern, "*")
	if !some {
		return topic == pattern
	}
	topic, isPrefix := strings.CutPrefix(topic, first)
	if !isPrefix {
		return false
	}
	parts := strings.Split(rest, "*")
	last := len(parts) - 1
	for _, part := range parts[:last] { // The first place is the best: it leaves most to the others.
		_, after, found := strings.Cut(topic, part)
		if !found {
			return false
		}
		topic = after
	}
	return strings.HasSuffix(topic, parts[last])
}

// InvalidError says which field of a message is outside which limit.
type InvalidError struct {
	// Field is topic, id, key, header, tag, late, body, due or size.
	Field string
	// Value is the offending value; long ones are shortened, bodies never shown.
	Value string
	// Limit says what is allowed.
	Limit string
}

func (e *InvalidError) Error() string {
	const shown = 64
	value := e.Value
	if len(value) > shown {
		value = value[:shown] + "…"
	}
	return fmt.Sprintf("%s %q: %s", e.Field, value, e.Limit)
}

func checkLength(field, value string, least, most int) error {
	if len(value) >= least && len(value) <= most {
		return nil
	}
	return &InvalidError{Field: field, Value: value, Limit: fmt.Sprintf("%d bytes, allowed are %d to %d", len(value), least, most)}
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 })
}
