package message

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// SinkType names a broker; its rules decide which topics are valid.
type SinkType string

// The brokers that the bridge publishes to.
const (
	Kafka    SinkType = "kafka"
	NATS     SinkType = "nats"
	RabbitMQ SinkType = "rabbitmq"
)

// CheckTopic reports whether the broker could ever accept the topic. The SDK
// asks before it schedules, the sink again before it publishes. An unknown
// broker accepts any topic of 1 to 255 bytes of UTF-8 without control characters.
func CheckTopic(sink SinkType, topic string) error {
	if err := checkBrokersTopic(sink, topic); err != nil {
		return err
	}
	if !utf8.ValidString(topic) || hasControl(topic) {
		return &InvalidError{Field: "topic", Value: topic, Limit: "must be UTF-8 without control characters"}
	}
	return nil
}

func checkBrokersTopic(sink SinkType, topic string) error {
	switch sink {
	case Kafka:
		return checkKafkaTopic(topic)
	case NATS:
		return checkNATSSubject(topic)
	default:
		return checkLength("topic", topic, 1, 255)
	}
}

// checkKafkaTopic applies the rule of org.apache.kafka.common.internals.Topic.
func checkKafkaTopic(topic string) error {
	if err := checkLength("topic", topic, 1, 249); err != nil {
		return err
	}
	if topic == "." || topic == ".." {
		return &InvalidError{Field: "topic", Value: topic, Limit: `a Kafka topic cannot be "." or ".."`}
	}
	for _, c := range []byte(topic) {
		if !isKafkaTopicByte(c) {
			return &InvalidError{Field: "topic", Value: topic, Limit: "a Kafka topic has only A-Z a-z 0-9 . _ -"}
		}
	}
	return nil
}

func isKafkaTopicByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

func checkNATSSubject(subject string) error {
	if err := checkLength("topic", subject, 1, 255); err != nil {
		return err
	}
	if strings.ContainsAny(subject, " *>") || hasControl(subject) {
		return &InvalidError{Field: "topic", Value: subject, Limit: "a NATS subject has no space, control character, * or >"}
	}
	for i, token := range strings.Split(subject, ".") {
		switch {
		case token == "":
			return &InvalidError{Field: "topic", Value: subject, Limit: "a NATS subject has no empty token"}
		case i == 0 && (token[0] == '$' || token == "_INBOX"):
			return &InvalidError{Field: "topic", Value: subject, Limit: "a NATS subject that starts with $ or _INBOX is the server's own"}
		}
	}
	return nil
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
