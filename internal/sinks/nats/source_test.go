package nats

import (
	"context"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// delivering is a consumer whose source ends while a message is on its way to it.
type delivering struct {
	jetstream.Consumer

	end     context.CancelFunc
	message *given
}

func (c *delivering) Fetch(int, ...jetstream.FetchOpt) (jetstream.MessageBatch, error) {
	c.end()
	return &batch{message: c.message}, nil
}

// batch has one message.
type batch struct {
	jetstream.MessageBatch

	message *given
}

func (c *batch) Messages() <-chan jetstream.Msg {
	messages := make(chan jetstream.Msg, 1)
	messages <- c.message
	close(messages)
	return messages
}

func (c *batch) Error() error { return context.Canceled }

// given counts how often it is given back.
type given struct {
	jetstream.Msg

	back int
}

func (m *given) Nak() error {
	m.back++
	return nil
}

// TestGatherGivesBack: what has come as a source ends is for the next one at once.
func TestGatherGivesBack(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	c := &delivering{end: end, message: &given{}}
	_, err := gather(ctx, c, 10)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, c.message.back)
}
