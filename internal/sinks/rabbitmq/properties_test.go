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

// properties encodes a message and reads it again.
func properties(t *testing.T, m *message.Message) content {
	t.Helper()
	encoded, refused := newEncoder(1, frame).properties(m)
	require.Nil(t, refused)
	c, err := readProperties(encoded)
	require.NoError(t, err)
	return c
}

// encodedString is a header's value as it is encoded.
func encodedString(s string) string { return "S" + string(longString(s)) }

func TestProperties(t *testing.T) {
	t.Parallel()
	m := newMessage(t, "orders", "topic")
	m.Headers = map[string]string{"Content-Type": "text/plain", "traceparent": "00-1-2-01", "x-empty": ""}
	require.Equal(t, content{
		headers: map[string]string{
			"traceparent": encodedString("00-1-2-01"), "x-empty": encodedString(""),
			"delay-id": encodedString(m.ID), "delay-queue": encodedString("orders"), "delay-attempt": encodedString("1"),
			"delay-uid":    encodedString(m.Token),
			"delay-due-at": encodedString("2030-03-17T17:46:40.123Z"), "delay-scheduled-at": encodedString("2027-01-15T08:00:00.000Z"),
		},
		contentType: "text/plain", id: m.ID,
	}, properties(t, &m))

	m.Headers = map[string]string{"content-type": ""}
	require.Contains(t, properties(t, &m).headers, "content-type", "AMQP has no empty property")

	m.ID = strings.Repeat("i", 256)
	c := properties(t, &m)
	require.Empty(t, c.id)
	require.Equal(t, encodedString(m.ID), c.headers["delay-id"])
}

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

// TestReadProperties has every property, and every type of a header that another
// side may add.
func TestReadProperties(t *testing.T) {
	t.Parallel()
	var table []byte
	values := map[string]string{
		"t": "t\x01", "b": "b\x01", "B": "B\x01", "s": "s\x00\x01", "u": "u\x00\x01", "i": "i\x00\x00\x00\x01", "I": "I\x00\x00\x00\x01",
		"f": "f\x00\x00\x00\x01", "D": "D\x01\x00\x00\x00\x01", "l": "l\x00\x00\x00\x00\x00\x00\x00\x01", "d": "d\x00\x00\x00\x00\x00\x00\x00\x01",
		"T": "T\x00\x00\x00\x00\x00\x00\x00\x01", "S": "S\x00\x00\x00\x01s", "x": "x\x00\x00\x00\x01x", "A": "A\x00\x00\x00\x02t\x01",
		"F": "F\x00\x00\x00\x04\x01nt\x01", "V": "V",
	}
	for name, value := range values {
		table = append(appendShort(table, name), value...)
	}
	all := []byte{0xFF, 0xF8}
	all = appendLong(appendShort(appendShort(all, "type"), "encoding"), string(table))
	all = append(all, amqp.Persistent, 9)
	for _, text := range []string{"correlation", "reply", "expiration", "id"} {
		all = appendShort(all, text)
	}
	c, err := readProperties(all)
	require.NoError(t, err)
	require.Equal(t, content{id: "id", contentType: "type", headers: values}, c)
	for end := range all {
		_, err := readProperties(all[:end])
		require.ErrorIs(t, err, errMalformed, "%d of %d bytes", end, len(all))
	}
	_, err = readTable(append(appendShort(nil, "name"), '?'))
	require.ErrorIs(t, err, errMalformed)
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
