package api_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/seal"
)

// TestSealedBodies are shown only where the configuration says so, and only those that open.
func TestSealedBodies(t *testing.T) {
	t.Parallel()
	ring, err := delay.ParseKeyring([]byte("k1 " + strings.Repeat("ab", 32)))
	require.NoError(t, err)
	other, err := delay.ParseKeyring([]byte("k2 " + strings.Repeat("cd", 32)))
	require.NoError(t, err)
	for name, setting := range map[string]struct {
		scenery
		shown map[string]any // by id
	}{
		"shown":  {scenery{open: func(m *message.Message) error { return seal.Open(ring, m) }}, map[string]any{"one": "the body of one", "clear": "the body of clear"}},
		"hidden": {scenery{}, map[string]any{"clear": "the body of clear"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, setting.scenery)
			for id, options := range map[string][]delay.Option{
				"one": {delay.WithEncryption(ring)}, "two": {delay.WithEncryption(other)}, "clear": nil,
			} {
				client, err := delay.NewClient(s.rdb, s.queue.Name(), options...)
				require.NoError(t, err)
				m := delay.Message{ID: id, Topic: "t", Headers: map[string]string{"a": "b"}, Body: []byte("the body of " + id)}
				_, err = client.Schedule(t.Context(), m, delay.After(time.Hour))
				require.NoError(t, err)
				got := s.call("GET", "/queues/QUEUE/messages/"+id+"?body=1", nil).is(http.StatusOK)
				assert.Equal(t, setting.shown[id], got["body"], id)
				assert.NotContains(t, got, "body_base64")
			}
			got := s.call("GET", "/queues/QUEUE/messages/two?body=1", nil).is(http.StatusOK)
			assert.Equal(t, map[string]any{"a": "b", message.HeaderSealed: "k2"}, got["headers"])
			answer := s.call("POST", "/queues/QUEUE/messages", map[string]any{
				"topic": "t", "headers": map[string]string{message.HeaderSealed: "k1"}, "body": "not sealed", "in": "1h",
			})
			answer.refused(http.StatusBadRequest, "invalid")
		})
	}
}
