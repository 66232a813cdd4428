package rabbitmq

import (
	"bytes"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

const frame = frameMax

// TestPropertiesAtTheConsumer publishes with the driver's own reader at the other
// end, and compares all that it knows.
func TestPropertiesAtTheConsumer(t *testing.T) {
	t.Parallel()
	url := testenv.RabbitMQ(t)
	queue := testenv.Name(t, "queue")
	declare(t, url, queue, nil)
	sink := newSink(t, Config{URL: url, Connections: 1})
	m := newMessage(t, "orders", queue)
	m.Headers = map[string]string{"Content-Type": "text/plain", "x-empty": ""}
	m.Body = bytes.Repeat([]byte("0123456789abcdef"), 3*frame/16+1)
	requireOutcome(t, publish(t, sink, m)[0], sinks.Acknowledged, "")
	got := read(t, url, queue, 1)[0]
	require.Equal(t, amqp.Publishing{
		Headers: amqp.Table{
			"x-empty": "", "delay-id": m.ID, "delay-queue": "orders", "delay-attempt": "1", "delay-uid": m.Token,
			"delay-due-at": "2030-03-17T17:46:40.123Z", "delay-scheduled-at": "2027-01-15T08:00:00.000Z",
		},
		ContentType: "text/plain", DeliveryMode: amqp.Persistent, MessageId: m.ID, Timestamp: m.DueAt.Truncate(time.Second), Body: m.Body,
	}, amqp.Publishing{
		Headers: got.Headers, ContentType: got.ContentType, ContentEncoding: got.ContentEncoding, DeliveryMode: got.DeliveryMode,
		Priority: got.Priority, CorrelationId: got.CorrelationId, ReplyTo: got.ReplyTo, Expiration: got.Expiration,
		MessageId: got.MessageId, Timestamp: got.Timestamp, Type: got.Type, UserId: got.UserId, AppId: got.AppId, Body: got.Body,
	})
}

func TestPropertiesRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil  func(*message.Message)
		reason sinks.Reason
	}{
		"no topic":          {func(m *message.Message) { m.Topic = "" }, sinks.ReasonInvalid},
		"long topic":        {func(m *message.Message) { m.Topic = strings.Repeat("t", 256) }, sinks.ReasonInvalid},
		"CC":                {func(m *message.Message) { m.Headers = map[string]string{"CC": "a"} }, sinks.ReasonInvalid},
		"BCC":               {func(m *message.Message) { m.Headers = map[string]string{"BCC": "a"} }, sinks.ReasonInvalid},
		"no header name":    {func(m *message.Message) { m.Headers = map[string]string{"": "a"} }, sinks.ReasonInvalid},
		"long header name":  {func(m *message.Message) { m.Headers = map[string]string{strings.Repeat("n", 256): "a"} }, sinks.ReasonInvalid},
		"long content type": {func(m *message.Message) { m.Headers = map[string]string{"content-type": strings.Repeat("c", 256)} }, sinks.ReasonInvalid},
		"headers too large": {func(m *message.Message) { m.Headers = map[string]string{"h": strings.Repeat("v", frame-200)} }, sinks.ReasonTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMessage(t, "orders", "topic")
			c.spoil(&m)
			_, refused := newEncoder(1, frame).properties(&m)
			require.NotNil(t, refused)
			requireOutcome(t, *refused, sinks.Permanent, c.reason)
		})
	}
}
