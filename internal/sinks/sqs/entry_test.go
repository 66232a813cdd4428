package sqs

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

func TestEncode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ body, text, encoding string }{
		{"", "-", "empty"},
		{"-", "-", ""},
		{"{\"a\":\t1}\r\n", "{\"a\":\t1}\r\n", ""},
		{"grüße 😀 \u007f \ufffd", "grüße 😀 \u007f \ufffd", ""},
		{"\x00", "AA==", "base64"},
		{"a\x1fb", "YR9i", "base64"},
		{"\xff", "/w==", "base64"},
		{"\xed\xa0\x80", "7aCA", "base64"}, // half of a surrogate
		{"\ufffe", base64.StdEncoding.EncodeToString([]byte("\ufffe")), "base64"},
		{"\uffff", base64.StdEncoding.EncodeToString([]byte("\uffff")), "base64"},
	} {
		text, encoding := encode([]byte(c.body))
		require.Equal(t, c.text, text, "%q", c.body)
		require.Equal(t, c.encoding, encoding, "%q", c.body)
	}
}

// All headers are in one attribute, whatever they are called. Some are attributes, too, so that
// consumers can filter by them.
func TestHeaders(t *testing.T) {
	t.Parallel()
	m := message.Message{
		ID: "id\uffff", Key: "käse", Topic: "orders", Queue: "orders", Attempt: 2, Token: "token", DueAt: time.UnixMilli(0), ScheduledAt: time.UnixMilli(0), Body: []byte{0},
		Headers: map[string]string{
			"traceparent": "00-1", "content-type": "text/plain", "AWS.x": "1", "amazon.y": "1", ".z": "1", "a..b": "1", "a/b": "1", "empty": "", "odd": "\ufffe",
			strings.Repeat("n", 257): "1", "delay-tags": "a,b", "h1": "1", "h2": "2", "h3": "3", "h4": "4", "h5": "5", "h6": "6",
		},
	}
	e := newEntry(&m, 3)
	require.Equal(t, "3", *e.Id)
	names := []string{}
	size := len(*e.MessageBody)
	for name, value := range e.MessageAttributes {
		require.Equal(t, "String", *value.DataType)
		names = append(names, name)
		size += len(name) + len("String") + len(*value.StringValue)
	}
	require.ElementsMatch(t, []string{"delay-headers", "delay-uid", "delay-encoding", "content-type", "h1", "h2", "h3", "h4", "h5", "h6"}, names)
	require.Equal(t, size, e.size)
	text := *e.MessageAttributes["delay-headers"].StringValue
	require.True(t, isText(text))
	var all map[string]string
	require.NoError(t, json.Unmarshal([]byte(text), &all))
	require.Equal(t, "käse", all["delay-key"])
	delete(all, "delay-key")
	want := map[string]string{}
	for _, header := range m.PublishedHeaders() {
		want[header.Name] = header.Value
	}
	require.Equal(t, want, all)
	require.Nil(t, e.MessageGroupId, "the queue is no FIFO queue")
	require.Nil(t, e.MessageDeduplicationId)
}

// A FIFO queue keeps the order of a group, and drops what it knows: the attempts of one schedule,
// and nothing else.
func TestGroupAndDeduplication(t *testing.T) {
	t.Parallel()
	of := func(change func(*message.Message)) (group, dedup string) {
		m := message.Message{ID: "id", Key: "key", Topic: "orders.fifo", Token: "token", Attempt: 1}
		change(&m)
		e := newEntry(&m, 0)
		require.NotEmpty(t, *e.MessageGroupId)
		require.LessOrEqual(t, len(*e.MessageGroupId), 128)
		require.Len(t, *e.MessageDeduplicationId, 64)
		return aws.ToString(e.MessageGroupId), aws.ToString(e.MessageDeduplicationId)
	}
	group, dedup := of(func(*message.Message) {})
	require.Equal(t, "key", group)
	for name, change := range map[string]func(*message.Message){
		"another id":   func(m *message.Message) { m.ID = "other" },
		"a reschedule": func(m *message.Message) { m.Token, m.Headers = "later", map[string]string{"delay-uid": "token"} },
	} {
		_, other := of(change)
		require.NotEqual(t, dedup, other, name)
	}
	_, again := of(func(m *message.Message) { m.Attempt = 2 })
	require.Equal(t, dedup, again, "another attempt is the same message")

	for _, key := range []string{"käse", "a b", "\x7f", strings.Repeat("k", 129)} {
		group, _ := of(func(m *message.Message) { m.Key = key })
		require.Len(t, group, 64, "%q is no group's name", key)
	}
	group, _ = of(func(m *message.Message) { m.Key = strings.Repeat("k", 128) })
	require.Equal(t, strings.Repeat("k", 128), group)
	one, _ := of(func(m *message.Message) { m.Key = "" })
	other, _ := of(func(m *message.Message) { m.Key, m.Token = "", "other" })
	require.NotEqual(t, one, other, "messages without a Key wait for nobody")
}
