package delay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// TestLate travels with the message, beside its tags and headers.
func TestLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, message.NATS)
	m := delay.Message{
		ID: "x", Topic: "t", Headers: map[string]string{"a": "b"}, Tags: []string{"sale"}, Body: []byte("body"),
		Late: delay.Late{After: 90 * time.Minute, Then: delay.LateDrop},
	}
	_, err := w.client(t).Schedule(t.Context(), m, delay.After(time.Hour))
	require.NoError(t, err)
	info, err := w.client(t).Get(t.Context(), delay.Ref{ID: "x"})
	require.NoError(t, err)
	require.Equal(t, m, info.Message)
	require.Len(t, m.Headers, 1, "the caller's are left alone")
}
