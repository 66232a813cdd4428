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
	of := func(topic, token string) *publication {
		m := message.Message{ID: "id", Topic: topic, Token: token}
		encoded, refused := newEncoder(1, 0).properties(&m)
		require.Nil(t, refused)
		return &publication{submission: &submission{}, topic: topic, properties: encoded}
	}
	first, second, elsewhere := of("a", "1"), of("a", "2"), of("b", "1")
	c := &channel{pending: []*publication{first, second, elsewhere}}
	back := func(uid string) { c.noteReturn(&returnedMessage{code: amqp.NoRoute, topic: "a", uid: uid}) }
	back("1")
	require.ErrorIs(t, first.returned, errUnroutable)
	require.NoError(t, second.returned)
	back("")
	require.ErrorIs(t, first.returned, errUnroutable)
	require.ErrorIs(t, second.returned, errTwin, "something has taken the header off: it may be this one")
	require.NoError(t, elsewhere.returned)

	ghost, again, other := of("a", "3"), of("a", "3"), of("a", "4")
	ghost.submission = nil
	c.pending = []*publication{ghost, again, other}
	back("3")
	require.ErrorIs(t, again.returned, errTwin, "it may have been the copy that nobody waits for")
	require.NoError(t, other.returned)

	c.pending = nil
	back("1") // of a message that nobody knows
}
