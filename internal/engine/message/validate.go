package message

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits on what a producer may schedule. They keep a message inside the
// defaults of all three brokers.
const (
	MaxIDLength      = 255
	MaxKeyLength     = 255
	MaxHeaders       = 64
	MaxHeaderName    = 255
	DefaultMaxSize   = 960 << 10 // bytes, see [Message.Size]
	MaxDelayYears    = 10
	reservedPrefix   = "delay-"
	reservedNATSName = "nats-"
	// natsHeaderRefused are the separators of RFC 9110 that nats.go does not send in a name.
	natsHeaderRefused = `"(),/;<=>?@[\]{}`
)

// Validate checks every field but the due time against the limits. maxSize is
// the size limit in bytes. The error is an [*InvalidError].
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

func checkName(field, value string, least, most int) error {
	if err := checkLength(field, value, least, most); err != nil {
		return err
	}
	if !utf8.ValidString(value) || hasControl(value) || value != strings.TrimSpace(value) {
		return &InvalidError{Field: field, Value: value, Limit: "must be UTF-8 without control characters or outer spaces"}
	}
	return nil
}

func checkHeaders(sink SinkType, headers map[string]string) error {
	own, tags := CutTags(headers)
	if err := checkTags(tags); err != nil {
		return err
	}
	own, _, err := CutLate(own)
	if err != nil {
		return err
	}
	if own, _, err = CutSealed(own); err != nil {
		return err
	}
	if len(own) > MaxHeaders {
		return &InvalidError{Field: "header", Value: fmt.Sprintf("%d headers", len(own)), Limit: fmt.Sprintf("allowed are %d", MaxHeaders)}
	}
	for name, value := range own {
		if err := checkHeader(sink, name, value); err != nil {
			return err
		}
	}
	return nil
}

func reservedHeader(name string) error {
	return &InvalidError{Field: "header", Value: name, Limit: "delay-*, nats-*, CC and BCC are reserved"}
}

func checkHeader(sink SinkType, name, value string) error {
	if err := checkLength("header", name, 1, MaxHeaderName); err != nil {
		return err
	}
	for _, c := range []byte(name) {
		if c <= ' ' || c >= 0x7f || c == ':' {
			return &InvalidError{Field: "header", Value: name, Limit: "a name is printable ASCII without colon and space"}
		}
	}
	if sink == NATS && strings.ContainsAny(name, natsHeaderRefused) {
		return &InvalidError{Field: "header", Value: name, Limit: "NATS takes no name with one of " + natsHeaderRefused}
	}
	lower := strings.ToLower(name)
	if strings.HasPrefix(lower, reservedPrefix) || strings.HasPrefix(lower, reservedNATSName) || name == "CC" || name == "BCC" {
		return reservedHeader(name)
	}
	withoutTabs := strings.ReplaceAll(value, "\t", "")
	if !utf8.ValidString(value) || hasControl(withoutTabs) || value != strings.TrimSpace(value) {
		return &InvalidError{Field: "header", Value: name, Limit: "its value must be UTF-8 without control characters or outer spaces"}
	}
	return nil
}
