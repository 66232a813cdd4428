package rabbitmq

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

const (
	// maxShortString is AMQP's limit for names. A longer one makes the driver
	// close the connection.
	maxShortString = 255
	contentType    = "content-type"
	// headerFrameExtra is what a header frame holds beside names, headers and
	// content type: framing, fixed fields, lengths.
	headerFrameExtra = 64
)

// newPublishing makes the AMQP message, or says why the broker can never take
// it. Its headers must fit into one frame of frameSize bytes: the protocol
// cannot split them, and the broker closes the connection over a longer one.
//
// The timestamp is the due time now in force, which AMQP cuts to whole seconds.
// An ID that is too long for message-id is in the header delay-id alone.
func newPublishing(m *message.Message, frameSize int) (*amqp.Publishing, *sinks.Outcome) {
	if err := message.CheckTopic(message.RabbitMQ, m.Topic); err != nil {
		return nil, refusal(sinks.ReasonInvalid, err)
	}
	headers := m.PublishedHeaders()
	p := &amqp.Publishing{
		Headers:      make(amqp.Table, len(headers)),
		DeliveryMode: amqp.Persistent,
		Timestamp:    m.DueAt,
		Body:         m.Body,
	}
	if len(m.ID) <= maxShortString {
		p.MessageId = m.ID
	}
	size := headerFrameExtra + len(p.MessageId)
	for _, header := range headers {
		if err := checkHeader(header); err != nil {
			return nil, refusal(sinks.ReasonInvalid, err)
		}
		size += len(header.Name) + len(header.Value) + 6
		if p.ContentType == "" && header.Value != "" && strings.EqualFold(header.Name, contentType) {
			p.ContentType = header.Value
			continue
		}
		p.Headers[header.Name] = header.Value
	}
	if frameSize > 0 && size > frameSize {
		err := fmt.Errorf("headers: %d bytes, the broker takes %d", size, frameSize)
		return nil, refusal(sinks.ReasonTooLarge, err)
	}
	return p, nil
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

// isReturn reports whether the broker returned exactly this publishing. Headers
// that the broker added on the way do not count.
func isReturn(returned *amqp.Return, p *amqp.Publishing) bool {
	if returned.ContentType != p.ContentType || !bytes.Equal(returned.Body, p.Body) {
		return false
	}
	for name, value := range p.Headers {
		if returned.Headers[name] != value {
			return false
		}
	}
	return true
}
