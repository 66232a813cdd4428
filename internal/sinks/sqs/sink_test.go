package sqs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/sinktest"
	"github.com/delaybridge/delaybridge/internal/sinks/sqs"
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

// Each answer is one of one request: nothing is sent again, whatever the environment says.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		send   func(http.ResponseWriter, string) bool
		want   string
		whole  bool
		detail string
	}{
		{"missing", refuse(400, "QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"), "unavailable topic_missing", false, "what AWS says"},
		{"denied", refuse(403, "AccessDeniedException", ""), "unavailable auth", false, "what AWS says"},
		{"login", refuse(403, "InvalidClientTokenId", ""), "unavailable auth", true, "what AWS says"},
		{"throttled", refuse(403, "RequestThrottled", "RequestThrottled"), "unavailable throttled", false, "request-1"},
		{"key throttled", refuse(400, "KmsThrottled", "KMS.ThrottlingException"), "unavailable throttled", false, ""},
		{"key denied", refuse(400, "KmsAccessDenied", "KMS.AccessDeniedException"), "unavailable auth", false, ""},
		{"key disabled", refuse(400, "KmsDisabled", "KMS.DisabledException"), "unavailable broker", false, ""},
		{"limit", refuse(403, "OverLimit", "OverLimit"), "unavailable full", false, ""},
		{"too large for the queue", refuse(400, "InvalidParameterValue", "InvalidParameterValue"), "permanent invalid", false, "InvalidParameterValue"},
		{"too long", refuse(400, "BatchRequestTooLong", "AWS.SimpleQueueService.BatchRequestTooLong"), "permanent too_large", false, ""},
		{"contents", refuse(400, "InvalidMessageContents", "InvalidMessageContents"), "permanent invalid", false, ""},
		{"fails", refuse(500, "InternalFailure", ""), "unknown broker", false, ""},
		{"busy", refuse(503, "ServiceUnavailable", ""), "unknown broker", false, ""},
		{"a proxy", func(w http.ResponseWriter, _ string) bool {
			http.Error(w, "<html>", http.StatusBadGateway)
			return true
		}, "unknown broker", false, ""},
		{"nonsense", func(w http.ResponseWriter, _ string) bool {
			_, _ = w.Write([]byte(`{"Successful": 7`))
			return true
		}, "unknown connection", false, ""},
		{"another body", func(w http.ResponseWriter, text string) bool {
			store(w, strings.ReplaceAll(text, "body", "else"), nil)
			return true
		}, "unknown connection", false, "MD5"},
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

// Where SQS refuses a request for one of its messages, the others are stored, each once.
func TestOneRefusedMessageStopsNoOther(t *testing.T) {
	t.Parallel()
	a := &answers{send: func(w http.ResponseWriter, text string) bool {
		return strings.Contains(text, "poison") && refuse(400, "InvalidMessageContents", "InvalidMessageContents")(w, text)
	}}
	outcomes := sinktest.Publish(t, a.open(t, nil), batchOf(t, "orders", "", "one", "poison", "two")...)
	require.Equal(t, []string{"acknowledged", "permanent invalid", "acknowledged"}, told(outcomes))
	require.Equal(t, [][]string{{"one", "poison", "two"}, {"one"}, {"poison"}, {"two"}}, a.sends())
}

// I15: of a Key one message is in a request, so that none is stored behind one that was not.
func TestAFailedMessageHoldsUpItsKey(t *testing.T) {
	t.Parallel()
	a := &answers{send: func(w http.ResponseWriter, text string) bool {
		store(w, text, map[string]string{"a1": "RequestThrottled", "b1": "InternalError", "c1": "InvalidMessageContents"})
		return true
	}}
	batch := append(batchOf(t, "orders.fifo", "a", "a0", "a1", "a2"), batchOf(t, "orders.fifo", "b", "b0", "b1", "b2")...)
	batch = append(append(batch, batchOf(t, "orders.fifo", "c", "c0", "c1", "c2")...), batchOf(t, "orders.fifo", "", "d", "e")...)
	outcomes := sinktest.Publish(t, a.open(t, nil), batch...)
	require.Equal(t, []string{
		"acknowledged", "unavailable throttled", "unavailable throttled",
		"acknowledged", "unknown broker", "unavailable broker",
		"acknowledged", "permanent invalid", "acknowledged",
		"acknowledged", "acknowledged",
	}, told(outcomes))
	require.Equal(t, [][]string{{"a0", "b0", "c0", "d", "e"}, {"a1", "b1", "c1"}, {"c2"}}, a.sends())
}

// A connection that ends instead of an answer leaves everything open, and is no reason to send again.
func TestALostAnswerIsNotAskedForAgain(t *testing.T) {
	t.Parallel()
	a := &answers{send: func(w http.ResponseWriter, text string) bool {
		if strings.Contains(text, "first") {
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

// A queue is looked up once, and again when SQS says that it is gone.
func TestAQueueIsLookedUpOnce(t *testing.T) {
	t.Parallel()
	var gone atomic.Bool
	a := &answers{
		ask: func(_ http.ResponseWriter, text string) bool {
			require.Contains(t, text, `"QueueOwnerAWSAccountId":"123456789012"`)
			return false
		},
		send: func(w http.ResponseWriter, text string) bool {
			return gone.Load() && refuse(400, "QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue")(w, text)
		},
	}
	sink := a.open(t, func(c *sqs.Config) { c.Account = "123456789012" })
	publish := func() string { return told(sinktest.Publish(t, sink, batchOf(t, "orders", "", "body")...))[0] }
	require.Equal(t, "acknowledged", publish())
	require.Equal(t, "acknowledged", publish())
	require.Equal(t, 1, a.asks())
	gone.Store(true)
	require.Equal(t, "unavailable topic_missing", publish())
	gone.Store(false)
	require.Equal(t, "acknowledged", publish())
	require.Equal(t, 2, a.asks())
}

// Requests have up to ten messages and 64 KiB; a larger message is alone.
func TestRequestsAreBounded(t *testing.T) {
	t.Parallel()
	a := &answers{}
	batch := batchOf(t, "orders", "", strings.Split(strings.Repeat("m,", 24)+"m", ",")...)
	large := string(bytes.Repeat([]byte("l"), 50<<10))
	batch = append(batch, batchOf(t, "orders", "", large, large, strings.Repeat(large, 4))...)
	for _, outcome := range told(sinktest.Publish(t, a.open(t, nil), batch...)) {
		require.Equal(t, "acknowledged", outcome)
	}
	count := 0
	for _, bodies := range a.sends() {
		size := 0
		for _, body := range bodies {
			size += len(body)
		}
		require.LessOrEqual(t, len(bodies), 10)
		require.True(t, size <= 64<<10 || len(bodies) == 1, size)
		count += len(bodies)
	}
	require.Equal(t, len(batch), count)
	require.Equal(t, 5, len(a.sends())) //nolint:testifylint // It would print all of it.
}

// provider is a login that comes and changes.
type provider func() (aws.Credentials, error)

// Retrieve implements [aws.CredentialsProvider].
func (p provider) Retrieve(context.Context) (aws.Credentials, error) { return p() }

// Without a login nothing is sent. One that has ended is asked for again, and no secret is sent.
func TestLogin(t *testing.T) {
	t.Parallel()
	var logins atomic.Int64
	a := &answers{}
	sink := a.open(t, func(c *sqs.Config) {
		c.Credentials = provider(func() (aws.Credentials, error) {
			if n := logins.Add(1); n > 1 {
				return aws.Credentials{AccessKeyID: fmt.Sprint("KEY", n), SecretAccessKey: "hidden", CanExpire: true, Expires: time.Now().Add(-time.Second)}, nil
			}
			return aws.Credentials{}, errors.New("no role is attached")
		})
	})
	publish := func() sinks.Outcome { return sinktest.Publish(t, sink, batchOf(t, "orders", "", "body")...)[0] }
	outcome := publish()
	sinktest.RequireOutcome(t, outcome, sinks.Unavailable, sinks.ReasonAuth)
	require.True(t, outcome.Whole)
	require.ErrorContains(t, outcome.Err, "no role is attached")
	require.Zero(t, a.asks())
	sinktest.RequireOutcome(t, publish(), sinks.Acknowledged, "")
	known := logins.Load()
	sinktest.RequireOutcome(t, publish(), sinks.Acknowledged, "")
	require.Greater(t, logins.Load(), known)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, header := range a.headers {
		require.Contains(t, header.Get("Authorization"), "Credential=KEY")
		require.NotContains(t, fmt.Sprint(header), "hidden")
	}
}

// Ping asks for a queue, and does not need to find it.
func TestPing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		ask  func(http.ResponseWriter, string) bool
		isUp bool
	}{
		{nil, true},
		{refuse(400, "QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"), true},
		{refuse(403, "AccessDenied", ""), true},
		{refuse(403, "SignatureDoesNotMatch", ""), false},
		{refuse(503, "ServiceUnavailable", ""), false},
	} {
		a := &answers{ask: c.ask}
		require.Equal(t, c.isUp, a.open(t, nil).Ping(t.Context()) == nil)
		require.Equal(t, 1, a.asks())
	}
}

// TestQueues publishes to queues of both kinds. A standard queue has every attempt, a FIFO queue
// one of a message. Consumers see the headers that are attributes.
func TestQueues(t *testing.T) {
	t.Parallel()
	b := newBroker(t, testenv.SQS(t))
	sink := openSink(t, b.address, nil)
	for _, c := range []struct {
		queue  string
		copies int
	}{{testenv.Name(t, "orders"), 2}, {testenv.Name(t, "orders") + fifo, 1}} {
		b.makeQueue(t, c.queue)
		m := sinktest.NewMessage(t, c.queue, "käse")
		m.Headers = map[string]string{"traceparent": "00-1", "empty": ""}
		for range 2 {
			sinktest.RequireOutcome(t, sinktest.Publish(t, sink, m)[0], sinks.Acknowledged, "")
			m.Attempt++
		}
		stored := b.consume(t, c.queue, c.copies)
		require.Len(t, stored, c.copies, c.queue)
		require.Equal(t, "00-1", attributeOf(stored[0], "traceparent"))
		require.Equal(t, m.UID(), attributeOf(stored[0], "delay-uid"))
		require.Equal(t, "body", *stored[0].Body)
		require.Equal(t, "käse", storedOf(t, stored[0]).Key)
	}
}

// A reschedule is another message to a FIFO queue: a copy of before must not swallow it.
func TestARescheduledMessageIsStoredAgain(t *testing.T) {
	t.Parallel()
	b := newBroker(t, testenv.SQS(t))
	sink, queue := openSink(t, b.address, nil), testenv.Name(t, "orders")+fifo
	b.makeQueue(t, queue)
	m := sinktest.NewMessage(t, queue, "key")
	sinktest.RequireOutcome(t, sinktest.Publish(t, sink, m)[0], sinks.Acknowledged, "")
	m.Headers, m.Token = map[string]string{message.HeaderUID: m.UID()}, "fedcba9876543210"
	sinktest.RequireOutcome(t, sinktest.Publish(t, sink, m)[0], sinks.Acknowledged, "")
	stored := b.consume(t, queue, 2)
	require.Len(t, stored, 2)
	require.Equal(t, attributeOf(stored[0], "delay-uid"), attributeOf(stored[1], "delay-uid"))
}

// What docs/sinks/sqs.md shows reads each kind of body.
func TestReadInPython(t *testing.T) {
	t.Parallel()
	python := testenv.Program(t, "python3")
	b := newBroker(t, testenv.SQS(t))
	sink, queue := openSink(t, b.address, nil), testenv.Name(t, "orders")+fifo
	b.makeQueue(t, queue)
	bodies := []string{"text", "", "\x00\xff", "grüße"}
	for _, m := range batchOf(t, queue, "key", bodies...) {
		sinktest.RequireOutcome(t, sinktest.Publish(t, sink, m)[0], sinks.Acknowledged, "")
	}
	for i, m := range b.consume(t, queue, len(bodies)) {
		attributes := map[string]map[string]string{}
		for name := range m.MessageAttributes {
			attributes[name] = map[string]string{"StringValue": attributeOf(m, name)}
		}
		input, err := json.Marshal(map[string]any{"Body": *m.Body, "MessageAttributes": attributes})
		require.NoError(t, err)
		const program = `import json, sys, read; headers, body = read.read(json.load(sys.stdin)); print(headers["delay-key"], body.hex())`
		command := exec.CommandContext(t.Context(), python, "-B", "-c", program)
		command.Dir, command.Stdin = "testdata", bytes.NewReader(input)
		out, err := command.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Equal(t, fmt.Sprintf("key %x\n", bodies[i]), string(out))
	}
}
