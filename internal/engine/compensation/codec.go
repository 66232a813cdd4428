// Package compensation holds the compensation message: if Redis does not accept a
// write, the producer sends one to the broker, and the bridge redoes the write later.
//
// There are two kinds. [KindRow] names the row of an outbox that has committed:
// the row decides, the message only says that it should be looked at now.
// [KindMessage] carries a whole message of a producer without a database.
//
// The package knows only the format, so that the SDK may import it. The
// consumers are in package consumer.
package compensation

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/delaybridge/delaybridge/internal/engine/ijson"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Version is the version of the format that is written and understood.
const Version = 1

// The kinds of a compensation message.
const (
	KindRow     = "row"
	KindMessage = "message"
)

const (
	// Validity is how long after it was made a message of [KindMessage] is
	// redone: how long Redis may be away. After that it goes to the dead topic,
	// since nobody knows the effect of a copy that a broker kept for weeks.
	Validity = 24 * time.Hour
	// MaxEncoded bounds what is decoded, in bytes: the largest message that a
	// queue may be configured for, in base64, and its headers.
	MaxEncoded = 24 << 20
	// maxMessage is the largest that a queue may be configured for.
	maxMessage = 16 << 20
	// topicPrefix and the queue's name make the topic.
	topicPrefix = "delay.compensation."
	// latestMs is the end of the year 9999.
	latestMs = 253_402_300_799_999
)

// ErrUndecodable is returned for anything that is no compensation message of this version.
var ErrUndecodable = errors.New("undecodable compensation")

var errKind = errors.New("kind: must be row or message")

// Message is a compensation message. Row has only Kind, Queue, Token, ID and Key.
type Message struct {
	Kind  string
	Queue string
	// Token is that of an outbox message: 16 bytes that begin with '~'.
	Token   string
	ID, Key string

	Topic   string
	Headers map[string]string
	Body    []byte
	// DueAt and ValidUntil are in whole milliseconds, by Redis' clock.
	DueAt, ValidUntil time.Time
}

// wire is the JSON form.
type wire struct {
	Version    int               `json:"v"`
	Kind       string            `json:"kind"`
	Queue      string            `json:"queue"`
	Token      string            `json:"token"`
	ID         string            `json:"id"`
	Key        string            `json:"key,omitempty"`
	Topic      string            `json:"topic,omitempty"`
	Headers    map[string]string `json:"headers,omitempty"`
	Body       []byte            `json:"body,omitempty"`
	DueMs      *int64            `json:"due_ms,omitempty"`
	ValidUntil *int64            `json:"valid_until_ms,omitempty"`
}

// Topic returns the default topic of a queue's compensation messages.
func Topic(queue string) string { return topicPrefix + queue }

// Headers returns the headers of a compensation message.
func Headers() map[string]string {
	return map[string]string{"content-type": "application/json"}
}

// Encode checks m and returns its JSON. The body grows by a third, as base64.
func Encode(m *Message) ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("encode compensation: %w", err)
	}
	w := wire{Version: Version, Kind: m.Kind, Queue: m.Queue, Token: m.Token, ID: m.ID, Key: m.Key}
	if m.Kind == KindMessage {
		due, until := m.DueAt.UnixMilli(), m.ValidUntil.UnixMilli()
		w.Topic, w.Headers, w.Body, w.DueMs, w.ValidUntil = m.Topic, m.Headers, m.Body, &due, &until
	}
	encoded, err := json.Marshal(w)
	if err != nil {
		return nil, fmt.Errorf("encode compensation: %w", err)
	}
	return encoded, nil
}

// Decode is the inverse of [Encode]. It refuses everything that it does not
// know; every error is an [ErrUndecodable].
func Decode(encoded []byte) (*Message, error) {
	if len(encoded) > MaxEncoded {
		return nil, fmt.Errorf("%w: %d bytes, allowed are %d", ErrUndecodable, len(encoded), MaxEncoded)
	}
	if !utf8.Valid(encoded) {
		return nil, fmt.Errorf("%w: not UTF-8", ErrUndecodable)
	}
	var w wire
	if err := ijson.Decode(encoded, &w); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrUndecodable, describe(err))
	}
	m, err := w.message()
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUndecodable, err)
	}
	return m, nil
}

// describe says what is wrong with the JSON, and shows none of it.
func describe(err error) string {
	if kind := new(json.UnmarshalTypeError); errors.As(err, &kind) {
		if kind.Field == "" {
			return "not a JSON object"
		}
		return "field " + kind.Field + " has the wrong type"
	}
	if wrong := base64.CorruptInputError(0); errors.As(err, &wrong) {
		return "field body is not base64"
	}
	if wrong := new(ijson.Error); errors.As(err, &wrong) {
		return wrong.Error()
	}
	return "not one JSON object"
}

func (w *wire) message() (*Message, error) {
	m := &Message{
		Kind: w.Kind, Queue: w.Queue, Token: w.Token, ID: w.ID, Key: w.Key,
		Topic: w.Topic, Headers: w.Headers, Body: w.Body,
	}
	switch {
	case w.Version != Version:
		return nil, fmt.Errorf("version %d, known is %d", w.Version, Version)
	case w.Kind != KindRow && w.Kind != KindMessage:
		return nil, errKind
	case w.Kind == KindMessage && (w.DueMs == nil || w.ValidUntil == nil):
		return nil, errors.New("due_ms or valid_until_ms is missing")
	case w.Kind == KindMessage:
		m.DueAt, m.ValidUntil = time.UnixMilli(*w.DueMs), time.UnixMilli(*w.ValidUntil)
	case w.DueMs != nil || w.ValidUntil != nil:
		return nil, errors.New("a row has no times")
	}
	return m, nil
}

// check applies the limits common to all brokers and queues; the writer checks
// the queue's own.
func (m *Message) check() error {
	if !message.QueueName.MatchString(m.Queue) {
		return errors.New("queue: not the name of one")
	}
	if !isToken(m.Token) {
		return fmt.Errorf("token: must be %d printable bytes and begin with '~'", message.TokenLength)
	}
	switch m.Kind {
	case KindRow:
		if m.Topic != "" || len(m.Headers) > 0 || len(m.Body) > 0 || !m.DueAt.IsZero() || !m.ValidUntil.IsZero() {
			return errors.New("a row has no content")
		}
		return message.CheckIdentity(m.ID, m.Key)
	case KindMessage:
		if !isTime(m.DueAt) || !isTime(m.ValidUntil) {
			return errors.New("due_ms or valid_until_ms: out of range")
		}
		return m.Content().Validate("", maxMessage)
	default:
		return errKind
	}
}

// Content is what a message of [KindMessage] carries.
func (m *Message) Content() *message.Message {
	return &message.Message{ID: m.ID, Key: m.Key, Topic: m.Topic, Headers: m.Headers, Body: m.Body}
}

func isToken(token string) bool {
	if !message.IsOutboxToken(token) {
		return false
	}
	for _, c := range []byte(token) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return true
}

func isTime(t time.Time) bool {
	return !t.IsZero() && t.UnixMilli() >= 0 && t.UnixMilli() <= latestMs
}
