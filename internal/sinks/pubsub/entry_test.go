package pubsub

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// The Key is the ordering key, headers are attributes, and the body is bytes. What Pub/Sub could never
// take is refused, with the field, the value and the limit.
func TestEntry(t *testing.T) {
	t.Parallel()
	of := func(change func(*message.Message)) (pubsubMessage, error) {
		m := message.Message{ID: "id", Key: "käse", Topic: "orders", Token: "token", Attempt: 1, Body: []byte{0, 0xff}, Headers: map[string]string{"a": "<b>", "empty": ""}}
		change(&m)
		e, err := newEntry(&m, 3)
		if err != nil {
			return pubsubMessage{}, err
		}
		require.Equal(t, 3, e.index)
		var got pubsubMessage
		require.NoError(t, json.Unmarshal(e.text, &got))
		want := map[string]string{}
		for _, header := range m.PublishedHeaders() {
			want[header.Name] = header.Value
		}
		require.Equal(t, want, got.Attributes)
		return got, nil
	}
	got, err := of(func(*message.Message) {})
	require.NoError(t, err)
	require.Equal(t, "käse", got.OrderingKey)
	require.Equal(t, []byte{0, 0xff}, got.Data)
	got, err = of(func(m *message.Message) { m.Key, m.Body = "", nil })
	require.NoError(t, err)
	require.Empty(t, got.OrderingKey)
	require.Empty(t, got.Data)

	many := map[string]string{}
	for i := range attributesMost {
		many["h"+strings.Repeat("x", i)] = ""
	}
	fits := func(m *message.Message) {
		m.Headers = map[string]string{"h": strings.Repeat("v", 1024), strings.Repeat("n", nameMost): ""}
	}
	_, err = of(fits)
	require.NoError(t, err)
	for _, c := range []struct {
		change func(*message.Message)
		want   string
	}{
		{func(m *message.Message) { m.Topic = "projects/p/topics/t" }, `topic "projects/p/topics/t": a topic of Pub/Sub has 3 to 255`},
		{func(m *message.Message) { m.Key = strings.Repeat("k", keyMost+1) }, "1025 bytes, an ordering key of Pub/Sub is UTF-8 of at most 1024"},
		{func(m *message.Message) { m.Key = "\xff" }, "is UTF-8"},
		{func(m *message.Message) { m.Headers = many }, "Pub/Sub takes 100"},
		{func(m *message.Message) { m.Headers = map[string]string{"googclient": "1"} }, `header "googclient"`},
		{func(m *message.Message) { m.Headers = map[string]string{"h": strings.Repeat("v", 1025)} }, `header "h": its value has 1025 bytes`},
		{func(m *message.Message) { m.Headers = map[string]string{"h": "\xff"} }, `header "h"`},
		{func(m *message.Message) { m.Headers = map[string]string{strings.Repeat("n", nameMost+1): ""} }, "the name has 257 bytes, Pub/Sub takes 256"},
		{func(m *message.Message) { m.Body = make([]byte, sizeMost-10) }, "Pub/Sub takes 10000000"},
	} {
		_, err := of(c.change)
		require.ErrorContains(t, err, c.want)
	}
}
