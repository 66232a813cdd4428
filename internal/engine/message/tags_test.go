package message_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// TestTags: tags travel as one header, which is the first of what is stored, so that
// the scripts find it.
func TestTags(t *testing.T) {
	t.Parallel()
	own := map[string]string{"a": "first in the alphabet"}
	headers, err := message.WithTags(own, []string{"b", "a", "b"})
	require.NoError(t, err)
	require.Len(t, own, 1, "the caller's are left alone")
	m := message.Message{ID: "i", Topic: "t", Headers: headers}
	require.Equal(t, "\x01t\x02\x0adelay-tags\x03a,b\x01a", string(message.Encode(token, &m)[message.TokenLength:][:20]))
	require.NoError(t, m.Validate(message.NATS, 1000))
	require.Contains(t, m.PublishedHeaders(), message.Header{Name: message.HeaderTags, Value: "a,b"})
	var decoded message.Message
	require.NoError(t, decoded.Decode(inRedis(&m)))
	require.Equal(t, []string{"a", "b"}, decoded.Tags())
	require.Equal(t, 2, decoded.CountTags())
	back, tags := message.CutTags(decoded.Headers)
	require.Equal(t, own, back)
	require.Equal(t, []string{"a", "b"}, tags)

	m.Headers[message.HeaderTags] = strings.Repeat("t", 65)
	require.ErrorContains(t, m.Validate(message.NATS, 1000), `tag "ttt`)
	_, err = message.WithTags(m.Headers, nil)
	require.ErrorContains(t, err, "reserved")
}
