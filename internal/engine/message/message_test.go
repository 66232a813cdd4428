package message_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

func TestPublishedHeaders(t *testing.T) {
	t.Parallel()
	east := time.FixedZone("", 2*3600)
	m := message.Message{
		ID: "order-42/timeout", Key: "order-42", Queue: "orders", Attempt: 3, Token: "AbCdEfGhIjKlMnOp",
		Headers:     map[string]string{"traceparent": "00-1-2-01", "Z": "last?", "a": ""},
		DueAt:       time.Date(2026, 11, 21, 10, 0, 0, 7_999_999, east),
		ScheduledAt: time.Date(2026, 11, 21, 1, 0, 0, 0, east),
	}
	require.Equal(t, []message.Header{
		{Name: "Z", Value: "last?"},
		{Name: "a", Value: ""},
		{Name: "traceparent", Value: "00-1-2-01"},
		{Name: "delay-id", Value: "order-42/timeout"},
		{Name: "delay-queue", Value: "orders"},
		{Name: "delay-due-at", Value: "2026-11-21T08:00:00.007Z"},
		{Name: "delay-scheduled-at", Value: "2026-11-20T23:00:00.000Z"},
		{Name: "delay-attempt", Value: "3"},
		{Name: "delay-uid", Value: "AbCdEfGhIjKlMnOp"},
	}, m.PublishedHeaders())
	require.Len(t, m.Headers, 3, "the message is left alone")
	require.Len(t, new(message.Message).PublishedHeaders(), 6)
}

// TestMinimalHeaders: the attempt is there where it is not the first.
func TestMinimalHeaders(t *testing.T) {
	t.Parallel()
	m := message.Message{
		ID: "id", Queue: "orders", Attempt: 1, Minimal: true, Token: "AbCdEfGhIjKlMnOp",
		Headers: map[string]string{"own": "o"}, DueAt: time.Date(2026, 11, 21, 10, 0, 0, 7e6, time.UTC),
	}
	own := message.Header{Name: "own", Value: "o"}
	due, uid := message.Header{Name: "delay-due-at", Value: "2026-11-21T10:00:00.007Z"}, message.Header{Name: "delay-uid", Value: "AbCdEfGhIjKlMnOp"}
	require.Equal(t, []message.Header{own, due, uid}, m.PublishedHeaders())
	m.Attempt = 2
	require.Equal(t, []message.Header{own, {Name: "delay-attempt", Value: "2"}, due, uid}, m.PublishedHeaders())
}

// TestPublishedUID is the token, unless the message has had another one before.
func TestPublishedUID(t *testing.T) {
	t.Parallel()
	m := message.Message{Token: "now", Headers: message.WithUID(map[string]string{"a": "b"}, "first")}
	headers := m.PublishedHeaders()
	require.Len(t, headers, 7, "once")
	require.Equal(t, message.Header{Name: message.HeaderUID, Value: "first"}, headers[6])
	own, uid := message.CutUID(m.Headers)
	require.Equal(t, map[string]string{"a": "b"}, own)
	require.Equal(t, "first", uid)
	m.Headers = own
	require.Equal(t, "now", m.UID())
	m.Token = "~\n\x00é"
	require.Equal(t, "7e0a00c3a9", m.UID(), "no header holds it")
}

// TestPublishedTimes compares with the library's formatting.
func TestPublishedTimes(t *testing.T) {
	t.Parallel()
	base := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	times := []time.Time{
		{},
		base, base.AddDate(-1026, 0, 0), base.AddDate(-1027, 0, 0), base.AddDate(7973, 0, 0), base.AddDate(7974, 0, 0), base.AddDate(-3000, 0, 0),
		time.Date(2028, 2, 29, 23, 59, 59, 999_999_999, time.FixedZone("", -8*3600)),
	}
	for i := range 1000 {
		times = append(times, base.Add(time.Duration(i)*86_437_129*time.Millisecond))
	}
	for _, at := range times {
		m := message.Message{DueAt: at, ScheduledAt: at.Add(-time.Millisecond)}
		headers := m.PublishedHeaders()
		require.Equal(t, at.UTC().Format(message.TimeFormat), headers[2].Value)
		require.Equal(t, m.ScheduledAt.UTC().Format(message.TimeFormat), headers[3].Value)
	}
}

func TestSize(t *testing.T) {
	t.Parallel()
	m := message.Message{ID: "12", Key: "345", Topic: "6789", Headers: map[string]string{"a": "bc", "d": ""}, Body: make([]byte, 100)}
	require.Equal(t, 2+3+4+3+1+100, m.Size())
}

// TestCheckTopic is the rule that the sinks repeat; the SDK's test has every case.
func TestCheckTopic(t *testing.T) {
	t.Parallel()
	for sink, topics := range map[message.SinkType][2]string{
		message.Kafka:    {"orders.v1", "orders/v1"},
		message.NATS:     {"orders.v1", "orders.*"},
		message.PubSub:   {"Orders_v-1.a~+%", "projects/p/topics/orders"},
		message.RabbitMQ: {"orders #*", ""},
		message.SQS:      {"Orders_v-1.fifo", "orders.v1"},
		"another":        {"any thing", strings.Repeat("x", 256)},
	} {
		require.NoError(t, message.CheckTopic(sink, topics[0]), sink)
		var invalid *message.InvalidError
		require.ErrorAs(t, message.CheckTopic(sink, topics[1]), &invalid, sink)
		require.Equal(t, "topic", invalid.Field)
	}
	for _, name := range []string{".fifo", "orders.fifo.fifo", "orders.FIFO", "order/1", strings.Repeat("x", 81)} {
		require.Error(t, message.CheckTopic(message.SQS, name), name)
	}
	for _, name := range []string{"ab", "1st", "google", "order 1", "größe", strings.Repeat("x", 256)} {
		require.Error(t, message.CheckTopic(message.PubSub, name), name)
	}
	require.NoError(t, message.CheckTopic(message.PubSub, strings.Repeat("x", 255)))
	require.ErrorContains(t, message.CheckHeader(message.PubSub, "googclient", "1"), "Google's own")
	require.NoError(t, message.CheckHeader(message.PubSub, "baggage", strings.Repeat("v", 1024)))
	require.ErrorContains(t, message.CheckHeader(message.PubSub, "baggage", strings.Repeat("v", 1025)), `header "baggage": its value has 1025 bytes, a value for pubsub at most 1024`)
	require.NoError(t, message.CheckTopic(message.SQS, strings.Repeat("x", 75)+".fifo"))
}

func TestInvalidError(t *testing.T) {
	t.Parallel()
	err := &message.InvalidError{Field: "id", Value: strings.Repeat("x", 1000), Limit: "too long"}
	require.Contains(t, err.Error(), "id \"xxx")
	require.Contains(t, err.Error(), "too long")
	require.Less(t, len(err.Error()), 200, "shortened")
	body := message.Message{ID: "i", Topic: "t", Body: []byte("very secret" + strings.Repeat(" ", 100))}
	require.NotContains(t, body.Validate(message.Kafka, 50).Error(), "secret")
}
