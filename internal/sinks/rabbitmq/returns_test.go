package rabbitmq

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"
)

// TestReturns hands returns to a channel that waits for messages of one id.
func TestReturns(t *testing.T) {
	t.Parallel()
	of := func(topic, body string) *publication {
		return &publication{submission: &submission{}, topic: topic, id: "id", publishing: &amqp.Publishing{
			MessageId: "id", Body: []byte(body), Headers: amqp.Table{"h": "v"},
		}}
	}
	twins := []*publication{of("a", "x"), of("a", "x")}
	mate, elsewhere := of("a", "y"), of("b", "x")
	c := &channel{
		open:    &openChannel{returns: make(chan amqp.Return, 16)},
		pending: []*publication{twins[0], mate, elsewhere, twins[1]},
	}
	x := amqp.Return{ReplyCode: amqp.NoRoute, MessageId: "id", RoutingKey: "a", Body: []byte("x"), Headers: amqp.Table{"h": "v", "x-added": int64(1)}}
	c.open.returns <- x
	c.noteReturns()
	require.ErrorIs(t, twins[0].returned, errUnroutable, "the first copy has it")
	for _, p := range c.pending[1:] {
		require.NoError(t, p.returned)
	}

	changed := x
	changed.Headers = amqp.Table{"h": "changed"}
	c.open.returns <- changed
	c.noteReturns()
	require.ErrorIs(t, mate.returned, errTwin, "this one may be the changed message")
	require.ErrorIs(t, twins[1].returned, errTwin)
	require.ErrorIs(t, twins[0].returned, errUnroutable)
	require.NoError(t, elsewhere.returned)

	ghost, twin := of("a", "x"), of("a", "x")
	ghost.submission, ghost.publishing = nil, nil
	c.pending = []*publication{ghost, twin}
	c.open.returns <- x
	c.noteReturns()
	require.ErrorIs(t, twin.returned, errTwin, "it may have been the one that nobody waits for")

	c.pending = nil
	c.open.returns <- x // of a message that nobody knows
	close(c.open.returns)
	c.noteReturns()
	require.Nil(t, c.open.returns)
}
