package pubsub_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/pubsub"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
)

// batchOf are messages of a Key with these bodies.
func batchOf(t testing.TB, topic, key string, bodies ...string) (batch []message.Message) {
	t.Helper()
	for _, body := range bodies {
		m := sinktest.NewMessage(t, topic, key)
		m.Body = []byte(body)
		batch = append(batch, m)
	}
	return batch
}

func told(outcomes []sinks.Outcome) (list []string) {
	for _, o := range outcomes {
		list = append(list, strings.TrimSpace(fmt.Sprint(o.Class, " ", o.Reason)))
	}
	return list
}

// Each answer is one of one request: nothing is sent again.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		send   func(http.ResponseWriter, string) bool
		want   string
		whole  bool
		detail string
	}{
		{"missing", refuse(404, "NOT_FOUND"), "unavailable topic_missing", false, "404 NOT_FOUND: what Google says"},
		{"denied", refuse(403, "PERMISSION_DENIED"), "unavailable auth", false, "what Google says"},
		{"login", refuse(401, "UNAUTHENTICATED"), "unavailable auth", true, "what Google says"},
		{"quota", refuse(429, "RESOURCE_EXHAUSTED"), "unavailable throttled", false, "what Google says"},
		{"key disabled", refuse(400, "FAILED_PRECONDITION"), "unavailable broker", false, "what Google says"},
		{"invalid", refuse(400, "INVALID_ARGUMENT"), "permanent invalid", false, "Pub/Sub refused the message: INVALID_ARGUMENT"},
		{"too long", func(w http.ResponseWriter, _ string) bool {
			http.Error(w, "<html>", http.StatusRequestEntityTooLarge)
			return true
		}, "permanent too_large", false, "Too Large"},
		{"another refusal", refuse(400, "OUT_OF_RANGE"), "retryable refused", false, "OUT_OF_RANGE"},
		{"aborted", refuse(409, "ABORTED"), "unknown broker", false, ""},
		{"internal", refuse(500, "INTERNAL"), "unknown broker", false, ""},
		{"unavailable", refuse(503, "UNAVAILABLE"), "unknown broker", false, ""},
		{"deadline", refuse(504, "DEADLINE_EXCEEDED"), "unknown broker", false, ""},
		{"a proxy", func(w http.ResponseWriter, _ string) bool {
			http.Error(w, "<html>", http.StatusBadGateway)
			return true
		}, "unknown broker", false, "Bad Gateway"},
		{"no Pub/Sub", func(w http.ResponseWriter, _ string) bool {
			http.NotFound(w, nil)
			return true
		}, "unavailable broker", false, "Not Found"},
		{"nonsense", func(w http.ResponseWriter, _ string) bool {
			_, _ = w.Write([]byte(`{"messageIds": 7`))
			return true
		}, "unknown connection", false, ""},
		{"no id", func(w http.ResponseWriter, _ string) bool {
			_, _ = w.Write([]byte(`{"messageIds": [""]}`))
			return true
		}, "unknown broker", false, "does not tell"},
		{"more ids", func(w http.ResponseWriter, _ string) bool {
			store(w, 2)
			return true
		}, "unknown broker", false, "does not tell"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := &answers{send: c.send}
			outcome := sinktest.Publish(t, a.open(t, nil), batchOf(t, "orders", "", "body")...)[0]
			require.Equal(t, c.want, told([]sinks.Outcome{outcome})[0], "%v", outcome.Err)
			require.Equal(t, c.whole, outcome.Whole)
			require.ErrorContains(t, outcome.Err, c.detail)
			require.Len(t, a.sends(), 1)
		})
	}
}

// Where Pub/Sub refuses a request for one of its messages, that one is found, and the others are
// stored, each once and in order.
func TestOneRefusedMessageStopsNoOther(t *testing.T) {
	t.Parallel()
	a := &answers{send: func(w http.ResponseWriter, text string) bool {
		return strings.Contains(fmt.Sprint(bodiesOf(text)), "poison") && refuse(400, "INVALID_ARGUMENT")(w, text)
	}}
	outcomes := sinktest.Publish(t, a.open(t, nil), batchOf(t, "orders", "key", "1", "2", "poison", "3", "4")...)
	require.Equal(t, []string{"acknowledged", "acknowledged", "permanent invalid", "acknowledged", "acknowledged"}, told(outcomes))
	require.Equal(t, [][]string{{"1", "2", "poison", "3", "4"}, {"1", "2"}, {"poison", "3", "4"}, {"poison"}, {"3", "4"}}, a.sends())
}

// I15: what was refused with others is looked for, and then the topic fails: what is behind it is not sent.
func TestNothingIsSentBehindAFailure(t *testing.T) {
	t.Parallel()
	a := &answers{send: func(w http.ResponseWriter, text string) bool {
		if bodies := bodiesOf(text); len(bodies) > 2 {
			return refuse(400, "INVALID_ARGUMENT")(w, text)
		}
		return refuse(503, "UNAVAILABLE")(w, text)
	}}
	outcomes := sinktest.Publish(t, a.open(t, nil), batchOf(t, "orders", "key", "1", "2", "3", "4")...)
	require.Equal(t, []string{"unknown broker", "unknown broker", "unavailable broker", "unavailable broker"}, told(outcomes))
	require.Equal(t, [][]string{{"1", "2", "3", "4"}, {"1", "2"}}, a.sends())
}

// I15: of a Key one request is under way, and nothing behind one that failed is sent. A message that
// can never be sent holds up nobody.
func TestAFailedRequestHoldsUpItsKeys(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	a := &answers{send: func(w http.ResponseWriter, text string) bool {
		return requests.Add(1) == 2 && refuse(429, "RESOURCE_EXHAUSTED")(w, text)
	}}
	large := strings.Repeat("l", 20<<10) // One fits into a request.
	batch := batchOf(t, "orders", "a", "1"+large, "2"+large, "3", "4"+large)
	batch[2].Headers = map[string]string{"baggage": strings.Repeat("b", 1025)}
	outcomes := sinktest.Publish(t, a.open(t, nil), batch...)
	require.Equal(t, []string{"acknowledged", "unavailable throttled", "permanent invalid", "unavailable throttled"}, told(outcomes))
	require.Len(t, a.sends(), 2)

	batch[2].Key, batch[3].Key = "b", "b"
	a.send = nil
	outcomes = sinktest.Publish(t, a.open(t, nil), batch...)
	require.Equal(t, []string{"acknowledged", "acknowledged", "permanent invalid", "acknowledged"}, told(outcomes))
	require.ErrorContains(t, outcomes[2].Err, `header "baggage": its value has 1025 bytes, a value for pubsub at most 1024`)
}

// A connection that ends instead of an answer leaves everything open, and is no reason to send again.
func TestALostAnswerIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	a := &answers{send: func(w http.ResponseWriter, text string) bool {
		if bodiesOf(text)[0] == "first" {
			return false
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = conn.Close()
		}
		return true
	}}
	sink := a.open(t, nil)
	require.Equal(t, []string{"acknowledged"}, told(sinktest.Publish(t, sink, batchOf(t, "orders", "", "first")...)), "the connection is used")
	require.Equal(t, []string{"unknown connection"}, told(sinktest.Publish(t, sink, batchOf(t, "orders", "", "lost")...)))
	require.Equal(t, [][]string{{"first"}, {"lost"}}, a.sends())
}

// Requests have up to 32 KiB; a larger message is alone. A Key's messages share a request, in order.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	a := &answers{}
	bodies := strings.Split(strings.Repeat("m,", 1199)+"m", ",")
	for i := range bodies {
		bodies[i] += fmt.Sprint(i)
	}
	batch := batchOf(t, "orders", "key", append(bodies, strings.Repeat("l", 200<<10))...)
	outcomes := sinktest.Publish(t, a.open(t, nil), batch...)
	require.Equal(t, []string{"acknowledged"}, told(outcomes[:1]))
	require.Equal(t, "entry stored-1", outcomes[1].Place.String())
	var stored []string
	requests := a.sends()
	for n, request := range requests {
		stored = append(stored, request...)
		require.True(t, len(request) == 1 || a.sizes[n] < 33<<10, "%d messages have %d bytes", len(request), a.sizes[n])
	}
	require.Equal(t, bodies, stored[:len(bodies)])
	require.Len(t, requests[len(requests)-1], 1)
	require.Greater(t, len(requests[0]), 50, "a Key's messages share requests")
}

// Topics and names may have what a URL may not.
func TestTopicInAURL(t *testing.T) {
	t.Parallel()
	a := &answers{}
	sinktest.RequireOutcome(t, sinktest.Publish(t, a.open(t, func(c *pubsub.Config) { c.Project = "example.com:shop" }), batchOf(t, "a%2F~+b", "", "body")...)[0], sinks.Acknowledged, "")
	require.Equal(t, []string{"POST /v1/projects/example.com:shop/topics/a%252F~+b:publish"}, a.paths)
}

// Ping asks for a topic, and does not need to find it.
func TestPing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ask  func(http.ResponseWriter, string) bool
		isUp bool
	}{
		{nil, true},
		{refuse(404, "NOT_FOUND"), true},
		{refuse(403, "PERMISSION_DENIED"), true},
		{refuse(401, "UNAUTHENTICATED"), false},
		{refuse(503, "UNAVAILABLE"), false},
		{refuse(404, ""), false},
	} {
		a := &answers{ask: c.ask}
		require.Equal(t, c.isUp, a.open(t, nil).Ping(t.Context()) == nil)
		require.Len(t, a.paths, 1)
	}
}

// TestTopics publishes what has a Key and what has none. Consumers see the headers as attributes, and each
// attempt is a message of its own.
func TestTopics(t *testing.T) {
	t.Parallel()
	b := newBroker(t, testenv.PubSub(t))
	sink, topic := openSink(t, b.address, nil), testenv.Name(t, "orders")
	b.MakeTopic(t, topic, sinktest.TopicOptions{})
	m := sinktest.NewMessage(t, topic, "käse")
	m.Headers, m.Body = map[string]string{"traceparent": "00-1", "empty": "", "long": strings.Repeat("ä", 512)}, bytes.Repeat([]byte{0, 0xff}, 5)
	for range 2 {
		outcome := sinktest.Publish(t, sink, m)[0]
		sinktest.RequireOutcome(t, outcome, sinks.Acknowledged, "")
		require.True(t, outcome.Place.IsKnown)
		m.Attempt++
	}
	stored := b.consume(t, topic, 2)
	require.Len(t, stored, 2)
	for i, s := range stored {
		require.Equal(t, "00-1", s.Message.Attributes["traceparent"])
		require.Equal(t, m.UID(), s.Message.Attributes["delay-uid"])
		require.Equal(t, fmt.Sprint(i+1), s.Message.Attributes["delay-attempt"])
		require.Equal(t, m.Body, s.Message.Data)
		require.Equal(t, "käse", s.Message.OrderingKey)
	}
}
