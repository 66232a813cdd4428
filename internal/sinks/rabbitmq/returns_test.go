package rabbitmq

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// TestReturns hands returns to a channel that waits for messages of one id.
func TestReturns(t *testing.T) {
	t.Parallel()
	of := func(topic, body string) *publication {
		m := message.Message{ID: "id", Topic: topic, Headers: map[string]string{"h": "v"}}
		encoded, refused := newEncoder(1, 0).properties(&m)
		require.Nil(t, refused)
		return &publication{submission: &submission{}, topic: topic, id: "id", properties: encoded, body: []byte(body)}
	}
	twins := []*publication{of("a", "x"), of("a", "x")}
	mate, elsewhere := of("a", "y"), of("b", "x")
	c := &channel{pending: []*publication{twins[0], mate, elsewhere, twins[1]}}
	back := func() *returnedMessage {
		own, err := readProperties(twins[0].properties)
		require.NoError(t, err)
		own.headers["x-added"] = "V"
		return &returnedMessage{code: amqp.NoRoute, topic: "a", content: own, body: []byte("x")}
	}
	c.noteReturn(back())
	require.ErrorIs(t, twins[0].returned, errUnroutable, "the first copy has it")
	for _, p := range c.pending[1:] {
		require.NoError(t, p.returned)
	}

	changed := back()
	changed.content.headers["h"] = encodedString("changed")
	c.noteReturn(changed)
	require.ErrorIs(t, mate.returned, errTwin, "this one may be the changed message")
	require.ErrorIs(t, twins[1].returned, errTwin)
	require.ErrorIs(t, twins[0].returned, errUnroutable)
	require.NoError(t, elsewhere.returned)

	ghost, twin := of("a", "x"), of("a", "x")
	ghost.submission, ghost.body = nil, nil
	c.pending = []*publication{ghost, twin}
	c.noteReturn(back())
	require.ErrorIs(t, twin.returned, errTwin, "it may have been the one that nobody waits for")

	c.pending = nil
	c.noteReturn(back()) // of a message that nobody knows
}
