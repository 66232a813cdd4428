package rabbitmq

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

const frame = 131_072

func TestNewPublishing(t *testing.T) {
	t.Parallel()
	m := newMessage(t, "orders", "topic")
	m.Headers = map[string]string{"Content-Type": "text/plain", "traceparent": "00-1-2-01", "x-empty": ""}
	p, refused := newPublishing(&m, frame)
	require.Nil(t, refused)
	require.Equal(t, &amqp.Publishing{
		Headers: amqp.Table{
			"traceparent": "00-1-2-01", "x-empty": "",
			"delay-id": m.ID, "delay-queue": "orders", "delay-attempt": "1",
			"delay-due-at": "2030-03-17T17:46:40.123Z", "delay-scheduled-at": "2027-01-15T08:00:00.000Z",
		},
		ContentType: "text/plain", DeliveryMode: amqp.Persistent, MessageId: m.ID,
		Timestamp: time.UnixMilli(1_900_000_000_123), Body: []byte("body"),
	}, p)

	m.Headers = map[string]string{"content-type": ""}
	p, refused = newPublishing(&m, frame)
	require.Nil(t, refused)
	require.Contains(t, p.Headers, "content-type", "AMQP has no empty property")

	m.ID = strings.Repeat("i", 256)
	p, refused = newPublishing(&m, frame)
	require.Nil(t, refused)
	require.Empty(t, p.MessageId)
	require.Equal(t, m.ID, p.Headers["delay-id"])
}

func TestNewPublishingRefuses(t *testing.T) {
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
			_, refused := newPublishing(&m, frame)
			require.NotNil(t, refused)
			requireOutcome(t, *refused, sinks.Permanent, c.reason)
		})
	}
}
