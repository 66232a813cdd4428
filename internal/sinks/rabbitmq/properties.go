package rabbitmq

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

const (
	// maxShortString is AMQP's limit for names.
	maxShortString = 255
	contentType    = "content-type"
	// headerFrameExtra is what a header frame has beside the properties: the
	// frame's own bytes, class, weight and the body's length.
	headerFrameExtra = frameExtra + 12
)

// Flags of the properties that we send, in the order in which they follow.
const (
	hasContentType  = 1 << 15
	hasHeaders      = 1 << 13
	hasDeliveryMode = 1 << 12
	hasMessageID    = 1 << 7
	hasTimestamp    = 1 << 6
)

// encoder encodes the properties of the messages of a batch, all into one memory.
type encoder struct {
	frameSize int // 0 is no limit
	memory    []byte
	headers   []message.Header
}

// propertiesUsual is what the properties of a message usually take, in bytes.
const propertiesUsual = 320

func newEncoder(messages, frameSize int) *encoder {
	return &encoder{frameSize: frameSize, memory: make([]byte, 0, messages*propertiesUsual)}
}

// properties returns a message's AMQP properties, or why the broker can never
// take it. They must fit into one frame: the protocol cannot split them, and the
// broker closes the connection over a longer one.
//
// The timestamp is the due time now in force, which AMQP cuts to whole seconds.
// An ID that is too long for message-id is in the header delay-id alone.
func (e *encoder) properties(m *message.Message) ([]byte, *sinks.Outcome) {
	if err := message.CheckTopic(message.RabbitMQ, m.Topic); err != nil {
		return nil, refusal(sinks.ReasonInvalid, err)
	}
	e.headers = m.AppendHeaders(e.headers[:0])
	flags, typeAt := uint16(hasHeaders|hasDeliveryMode|hasTimestamp), -1
	for i, header := range e.headers {
		if err := checkHeader(header); err != nil {
			return nil, refusal(sinks.ReasonInvalid, err)
		}
		if typeAt < 0 && header.Value != "" && strings.EqualFold(header.Name, contentType) {
			flags |= hasContentType
			typeAt = i
		}
	}
	if len(m.ID) <= maxShortString {
		flags |= hasMessageID
	}
	start := len(e.memory)
	b := binary.BigEndian.AppendUint16(e.memory, flags)
	if typeAt >= 0 {
		b = appendShort(b, e.headers[typeAt].Value)
	}
	b = appendTable(b, e.headers, typeAt)
	b = append(b, amqp.Persistent)
	if flags&hasMessageID != 0 {
		b = appendShort(b, m.ID)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(m.DueAt.Unix()))
	if size := headerFrameExtra + len(b) - start; e.frameSize > 0 && size > e.frameSize {
		return nil, refusal(sinks.ReasonTooLarge, fmt.Errorf("headers: %d bytes, the broker takes %d", size, e.frameSize))
	}
	e.memory = b
	return b[start:len(b):len(b)], nil
}

// appendTable appends the headers but the one at that index.
func appendTable(b []byte, headers []message.Header, without int) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	for i, header := range headers {
		if i != without {
			b = appendLong(append(appendShort(b, header.Name), 'S'), header.Value)
		}
	}
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

func checkHeader(header message.Header) error {
	switch {
	case header.Name == "CC" || header.Name == "BCC":
		return fmt.Errorf("header %s would route copies", header.Name)
	case header.Name == "":
		return errors.New("header without a name")
	case len(header.Name) > maxShortString:
		return fmt.Errorf("header %.32q…: its name has %d bytes, allowed are %d", header.Name, len(header.Name), maxShortString)
	case strings.EqualFold(header.Name, contentType) && len(header.Value) > maxShortString:
		return fmt.Errorf("header %s: %d bytes, allowed are %d", header.Name, len(header.Value), maxShortString)
	}
	return nil
}

func refusal(reason sinks.Reason, err error) *sinks.Outcome {
	outcome := sinks.Failed(sinks.Permanent, reason, err)
	return &outcome
}

// uidField is how the UID's header begins in the properties.
var uidField = append(appendShort(nil, message.HeaderUID), 'S')

// uidIn finds the UID in properties; without one it is "". It is the last of the headers, and the
// value of one before it may have these bytes: they begin with a tab.
func uidIn(properties []byte) string {
	at := bytes.LastIndex(properties, uidField)
	if at < 0 {
		return ""
	}
	r := reader{rest: properties[at+len(uidField):]}
	uid := r.long()
	if r.isShort {
		return ""
	}
	return string(uid)
}
