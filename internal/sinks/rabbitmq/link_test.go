package rabbitmq

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
)

// TestAttribute hands returns to a link that waits for messages of one id.
func TestAttribute(t *testing.T) {
	t.Parallel()
	publishing := func(body string) *amqp.Publishing {
		return &amqp.Publishing{MessageId: "id", Body: []byte(body), Headers: amqp.Table{"h": "v"}}
	}
	twins := []*sent{{topic: "a", publishing: publishing("x")}, {topic: "a", publishing: publishing("x")}}
	mate := &sent{topic: "a", publishing: publishing("y")}
	elsewhere := &sent{topic: "b", publishing: publishing("x")}
	forget := func(l *link, m *sent) error {
		l.forget(m)
		return m.returned
	}
	l := &link{
		returns: make(chan amqp.Return, window),
		pending: map[string][]*sent{"id": {twins[0], mate, elsewhere, twins[1]}},
	}
	x := amqp.Return{ReplyCode: amqp.NoRoute, MessageId: "id", RoutingKey: "a", Body: []byte("x"), Headers: amqp.Table{"h": "v", "x-added": int64(1)}}
	l.returns <- x
	require.NoError(t, forget(l, twins[1]), "the first copy has it")
	require.ErrorIs(t, forget(l, twins[0]), errUnroutable)

	changed := x
	changed.Headers = amqp.Table{"h": "changed"}
	l.returns <- changed
	require.NoError(t, forget(l, elsewhere))
	require.ErrorIs(t, forget(l, mate), errTwin, "this one may be the changed message")
	require.Empty(t, l.pending)

	l.returns <- x // of a message that nobody waits for
	close(l.returns)
	require.NoError(t, forget(l, &sent{topic: "a", publishing: publishing("x")}))
}
