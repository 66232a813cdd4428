package rabbitmq

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/secret"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

func TestPublishedProperties(t *testing.T) {
	t.Parallel()
	url := testenv.RabbitMQ(t)
	for _, kind := range []string{"classic", "quorum"} {
		topic := testenv.Name(t, kind)
		declare(t, url, topic, amqp.Table{"x-queue-type": kind})
		m := newMessage(t, "orders", topic)
		m.Headers = map[string]string{"Content-Type": "application/json", "traceparent": "00-1-2-01"}
		outcome := publish(t, newSink(t, Config{URL: url}), m)
		requireOutcome(t, outcome[0], sinks.Acknowledged, "")
		got := read(t, url, topic, 1)
		require.Len(t, got, 1)
		require.Equal(t, m.ID, got[0].MessageId)
		require.Equal(t, amqp.Persistent, got[0].DeliveryMode)
		require.Equal(t, "application/json", got[0].ContentType)
		require.Equal(t, int64(1_900_000_000), got[0].Timestamp.Unix())
		require.NotContains(t, got[0].Headers, "Content-Type")
		require.Equal(t, "00-1-2-01", got[0].Headers["traceparent"])
		require.Equal(t, m.ID, got[0].Headers["delay-id"])
	}
}

// TestLargestHeaders checks our reckoning of the header frame against the
// broker: a frame that is too long ends the connection.
func TestLargestHeaders(t *testing.T) {
	t.Parallel()
	url, topic := testenv.RabbitMQ(t), testenv.Name(t, "topic")
	declare(t, url, topic, nil)
	sink := newSink(t, Config{URL: url, Connections: 1})
	fits := newMessage(t, "orders", topic)
	size := frame
	for {
		fits.Headers = map[string]string{"h": strings.Repeat("v", size)}
		if _, refused := newEncoder(1, frame).properties(&fits); refused == nil {
			break
		}
		size--
	}
	over := newMessage(t, "orders", topic)
	over.Headers = map[string]string{"h": strings.Repeat("v", size+1)}
	outcomes := publish(t, sink, newMessage(t, "orders", topic), over, fits)
	requireOutcome(t, outcomes[0], sinks.Acknowledged, "")
	requireOutcome(t, outcomes[1], sinks.Permanent, sinks.ReasonTooLarge)
	requireOutcome(t, outcomes[2], sinks.Acknowledged, "")
	require.Len(t, read(t, url, topic, 2), 2)
}

// TestReturnsOfEqualIDs publishes messages of one id and different Keys, of
// which some come back: each must have its own outcome. A headers exchange
// routes even messages of one topic differently.
func TestReturnsOfEqualIDs(t *testing.T) {
	t.Parallel()
	url, exchange, queue := testenv.RabbitMQ(t), testenv.Name(t, "exchange"), testenv.Name(t, "queue")
	channel := open(t, url)
	require.NoError(t, channel.ExchangeDeclare(exchange, amqp.ExchangeHeaders, true, false, false, false, nil))
	declare(t, url, queue, nil)
	require.NoError(t, channel.QueueBind(queue, "", exchange, false, amqp.Table{"route": "yes"}))

	sink := newSink(t, Config{URL: url, Exchange: exchange, Connections: 1})
	batch := make([]message.Message, 600)
	for i := range batch {
		batch[i] = newMessage(t, "orders", "topic")
		batch[i].ID, batch[i].Key = "timeout", fmt.Sprint("key-", i)
		batch[i].Headers = map[string]string{"route": []string{"yes", "no"}[i%2], "order": fmt.Sprint(i / 4)}
	}
	for i, outcome := range publish(t, sink, batch...) {
		if i%2 == 0 {
			requireOutcome(t, outcome, sinks.Acknowledged, "")
		} else {
			requireOutcome(t, outcome, sinks.Unavailable, sinks.ReasonUnroutable)
		}
	}
	require.Len(t, read(t, url, queue, len(batch)/2), len(batch)/2)
}

// TestEqualIDsOfOtherTopics is the usual case: a returned message says nothing
// about one of the same id in another topic.
func TestEqualIDsOfOtherTopics(t *testing.T) {
	t.Parallel()
	url, topic, missing := testenv.RabbitMQ(t), testenv.Name(t, "topic"), testenv.Name(t, "missing")
	declare(t, url, topic, nil)
	sink := newSink(t, Config{URL: url, Connections: 1})
	batch := make([]message.Message, 400)
	for i := range batch {
		batch[i] = newMessage(t, "orders", []string{topic, missing}[i%2])
		batch[i].ID = "timeout"
	}
	for i, outcome := range publish(t, sink, batch...) {
		if i%2 == 0 {
			requireOutcome(t, outcome, sinks.Acknowledged, "")
		} else {
			requireOutcome(t, outcome, sinks.Unavailable, sinks.ReasonUnroutable)
		}
	}
	require.Len(t, read(t, url, topic, 200), 200)
}

func TestMissingExchange(t *testing.T) {
	t.Parallel()
	url, exchange, queue := testenv.RabbitMQ(t), testenv.Name(t, "exchange"), testenv.Name(t, "queue")
	sink := newSink(t, Config{URL: url, Exchange: exchange, Connections: 1})
	batch := []message.Message{newMessage(t, "orders", queue), newMessage(t, "orders", queue)}
	for _, outcome := range publish(t, sink, batch...) {
		requireOutcome(t, outcome, sinks.Unavailable, sinks.ReasonTopicMissing)
	}
	channel := open(t, url)
	create := func() {
		require.NoError(t, channel.ExchangeDeclare(exchange, amqp.ExchangeDirect, true, false, false, false, nil))
		require.NoError(t, channel.QueueBind(queue, queue, exchange, false, nil))
	}
	declare(t, url, queue, nil)
	create()
	for _, outcome := range publish(t, sink, batch...) {
		requireOutcome(t, outcome, sinks.Acknowledged, "")
	}
	// Deleted while it is in use, it closes our channel: unknown once, then said.
	require.NoError(t, channel.ExchangeDelete(exchange, false, false))
	connection := connectionOf(t, sink)
	require.Eventually(t, func() bool {
		outcome := publish(t, sink, newMessage(t, "orders", queue))[0]
		require.Contains(t, []sinks.Class{sinks.Unknown, sinks.Unavailable}, outcome.Class)
		require.False(t, outcome.Whole)
		require.Equal(t, sinks.ReasonTopicMissing, outcome.Reason)
		return outcome.Class == sinks.Unavailable
	}, time.Minute, 10*time.Millisecond)
	create()
	require.Eventually(t, func() bool {
		return publish(t, sink, newMessage(t, "orders", queue))[0].Class == sinks.Acknowledged
	}, time.Minute, 10*time.Millisecond)
	require.Same(t, connection, connectionOf(t, sink), "the connection survives")
}

func TestNextNodeTakesOver(t *testing.T) {
	t.Parallel()
	url, topic := testenv.RabbitMQ(t), testenv.Name(t, "topic")
	declare(t, url, topic, nil)
	proxy := testenv.NewProxy(t, address(t, url))
	first := withAddress(t, url, proxy.Addr())
	sink := newSink(t, Config{URL: "amqp://127.0.0.1:1" + "," + first + "," + url, Connections: 2})
	for _, change := range []func(){func() {}, func() { proxy.Refuse(true) }, proxy.Cut, func() { proxy.Refuse(false) }} {
		change()
		require.Eventually(t, func() bool {
			return publish(t, sink, newMessage(t, "orders", topic))[0].Class == sinks.Acknowledged
		}, time.Minute, 10*time.Millisecond)
		require.NoError(t, sink.Ping(t.Context()))
	}
}

// TestSilentConnection is a connection whose other side is gone without a word:
// calls end in time, and it is replaced before the network recovers.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	url, topic := testenv.RabbitMQ(t), testenv.Name(t, "topic")
	declare(t, url, topic, nil)
	proxy := testenv.NewProxy(t, address(t, url))
	sink := newSink(t, Config{URL: withAddress(t, url, proxy.Addr()), Connections: 1})
	requireOutcome(t, publish(t, sink, newMessage(t, "orders", topic))[0], sinks.Acknowledged, "")
	proxy.Blackhole(true)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	outcomes := sinks.Publish(ctx, sink, []message.Message{newMessage(t, "orders", topic)})
	requireOutcome(t, outcomes[0], sinks.Unknown, sinks.ReasonTimeout)
	require.Error(t, sink.Ping(ctx))
	require.Eventually(t, func() bool { return !isConnected(sink) }, time.Minute, 10*time.Millisecond)
	proxy.Blackhole(false)
	require.Eventually(t, func() bool {
		return publish(t, sink, newMessage(t, "orders", topic))[0].Class == sinks.Acknowledged
	}, 2*time.Minute, 10*time.Millisecond)
}

// TestCutConnection cuts the connection under many callers: what was
// acknowledged is stored, what was unavailable is not, and the next calls work.
func TestCutConnection(t *testing.T) {
	t.Parallel()
	url, topic := testenv.RabbitMQ(t), testenv.Name(t, "topic")
	declare(t, url, topic, nil)
	proxy := testenv.NewProxy(t, address(t, url))
	sink := newSink(t, Config{URL: withAddress(t, url, proxy.Addr()), Connections: 2})
	var callers sync.WaitGroup
	var mu sync.Mutex
	classes := map[string]sinks.Class{}
	for caller := range 4 {
		callers.Go(func() {
			for cut := false; !cut; proxy.Cut() {
				batch := make([]message.Message, 200)
				for i := range batch {
					batch[i] = newMessage(t, fmt.Sprint("queue-", caller), topic)
				}
				outcomes := publish(t, sink, batch...)
				mu.Lock()
				for i, outcome := range outcomes {
					classes[batch[i].ID] = outcome.Class
					cut = cut || outcome.Class != sinks.Acknowledged
				}
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	require.Eventually(t, func() bool {
		return publish(t, sink, newMessage(t, "orders", topic))[0].Class == sinks.Acknowledged
	}, time.Minute, 10*time.Millisecond)

	counts := map[sinks.Class]int{}
	for _, class := range classes {
		counts[class]++
	}
	stored := map[string]bool{}
	for _, d := range read(t, url, topic, counts[sinks.Acknowledged]+1) {
		stored[d.MessageId] = true
	}
	for id, class := range classes {
		require.Contains(t, []sinks.Class{sinks.Acknowledged, sinks.Unknown, sinks.Unavailable}, class)
		if class != sinks.Unknown {
			require.Equal(t, class == sinks.Acknowledged, stored[id], "message %s is %s", id, class)
		}
	}
	require.NotZero(t, counts[sinks.Unknown]+counts[sinks.Unavailable])
}

// TestPasswordFile logs in with a password that is put right while we run, and
// shows no login in the log.
func TestPasswordFile(t *testing.T) {
	t.Parallel()
	url, topic := testenv.RabbitMQ(t), testenv.Name(t, "topic")
	declare(t, url, topic, nil)
	uri, err := amqp.ParseURI(url)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "password")
	var text testenv.Log
	sink, err := New(Config{
		Name: "files", Connections: 1, URL: withLogin(t, url, "nobody:no-such-secret@"),
		User: uri.Username, Password: secret.File(file),
	}, slog.New(slog.NewTextHandler(&text, nil)))
	require.NoError(t, err)
	defer func() { require.NoError(t, sink.Close(context.Background())) }()
	requireOutcome(t, publish(t, sink, newMessage(t, "orders", topic))[0], sinks.Unavailable, sinks.ReasonAuth)
	require.NoError(t, os.WriteFile(file, []byte("no-such-secret\n"), 0o600))
	refused := func() bool {
		outcome := publish(t, sink, newMessage(t, "orders", topic))[0]
		requireOutcome(t, outcome, sinks.Unavailable, sinks.ReasonAuth)
		return strings.Contains(outcome.Err.Error(), "403")
	}
	require.Eventually(t, refused, 2*time.Minute, 10*time.Millisecond)
	require.NoError(t, os.WriteFile(file, []byte(uri.Password+"\n"), 0o600))
	require.Eventually(t, func() bool {
		return publish(t, sink, newMessage(t, "orders", topic))[0].Class == sinks.Acknowledged
	}, 2*time.Minute, 10*time.Millisecond)
	require.Equal(t, 1, strings.Count(text.String(), "cannot connect to RabbitMQ"), text.String())
	require.Equal(t, 1, strings.Count(text.String(), "connected to RabbitMQ"), text.String())
	require.NotContains(t, text.String(), "no-such-secret")
}

// address is the host and port of a URL.
func address(t testing.TB, url string) string {
	t.Helper()
	e, err := Config{}.parse(url)
	require.NoError(t, err)
	return e.host
}

func withAddress(t testing.TB, url, replacement string) string {
	t.Helper()
	return strings.Replace(url, address(t, url), replacement, 1)
}

func withLogin(t testing.TB, url, login string) string {
	t.Helper()
	scheme, rest, ok := strings.Cut(url, "://")
	require.True(t, ok)
	if _, after, ok := strings.Cut(rest, "@"); ok {
		rest = after
	}
	return scheme + "://" + login + rest
}
