package inlet_test

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
)

// publishPlugin publishes what two libraries publish to an exchange of RabbitMQ's plugin: it was
// x-delayed-message with x-delayed-type direct, and is now direct, and the inlet's queue is
// bound to it by the routing key.
func publishPlugin(t *testing.T, b *rabbitBroker) {
	t.Helper()
	exchange, key := b.name+".delayed", b.topic("out")
	require.NoError(t, b.channel.ExchangeDeclare(exchange, "direct", false, true, false, false, nil))
	require.NoError(t, b.channel.QueueBind(b.from(), key, exchange, false, nil))
	for _, m := range []amqp.Publishing{
		// MassTransit, RabbitMqSendTransportContext.Send: x-delay is a long, the id a message-id.
		{
			MessageId: "11110000-2222-3333-4444-555566667777", CorrelationId: "c", ContentType: "application/vnd.masstransit+json", DeliveryMode: amqp.Persistent,
			Headers: amqp.Table{"x-delay": int64(20), "Content-Type": "application/vnd.masstransit+json", "publishId": "1"}, Body: []byte("masstransit"),
		},
		// Brighter, RmqMessagePublisher.PublishMessage: x-delay is an int, so is HandledCount, and the routing key is the topic.
		{
			MessageId: "22220000-2222-3333-4444-555566667777", Type: "application/json", Timestamp: time.Now(), ContentType: "text/plain", DeliveryMode: amqp.Persistent,
			Headers: amqp.Table{"x-delay": int32(20), "MessageType": "MT_EVENT", "Topic": key, "HandledCount": int32(0), "CorrelationId": "c"}, Body: []byte("brighter"),
		},
		{MessageId: "negative", Headers: amqp.Table{"x-delay": int32(-5)}, Body: []byte("negative")},
		{MessageId: "none", Body: []byte("none")},
	} {
		confirmed, err := b.channel.PublishWithDeferredConfirm(exchange, key, true, false, m)
		require.NoError(t, err)
		require.True(t, confirmed.Wait())
	}
}
