package rabbitmq

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/testenv"
)

// TestOrderAcrossChannels publishes more than the window holds, with larger and
// larger messages among small ones: those go over another channel, which the
// broker serves independently.
func TestOrderAcrossChannels(t *testing.T) {
	t.Parallel()
	url, topic := testenv.RabbitMQ(t), testenv.Name(t, "topic")
	declare(t, url, topic, nil)
	sink := newSink(t, Config{URLs: []string{url}, Connections: 1})
	const callers, count = 3, 1500
	var publishing sync.WaitGroup
	for caller := range callers {
		publishing.Go(func() {
			batch := make([]message.Message, count)
			for i := range batch {
				batch[i] = newMessage(t, "orders", topic)
				batch[i].Key = fmt.Sprint("key-", caller)
				batch[i].ID = fmt.Sprint(i)
				batch[i].Headers = map[string]string{"key": batch[i].Key}
				if i%250 == 249 {
					batch[i].Body = make([]byte, (caller+1)*provenAtFirst+i)
				}
			}
			for _, outcome := range publish(t, sink, batch...) {
				if outcome.Class != sinks.Acknowledged {
					t.Errorf("%s: %v", outcome.Class, outcome.Err)
					return
				}
			}
		})
	}
	publishing.Wait()
	next := map[any]int{}
	for _, d := range read(t, url, topic, callers*count) {
		key := d.Headers["key"]
		require.Equal(t, fmt.Sprint(next[key]), d.MessageId, "order of %s", key)
		next[key]++
	}
}

// TestGivenUp gives up waiting on a channel: the next call uses another one of
// the same connection, and the old one is closed.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	url, topic := testenv.RabbitMQ(t), testenv.Name(t, "topic")
	declare(t, url, topic, nil)
	proxy := testenv.NewProxy(t, address(t, url))
	sink := newSink(t, Config{URLs: []string{withAddress(t, url, proxy.Addr())}, Connections: 1})
	requireOutcome(t, publish(t, sink, newMessage(t, "orders", topic))[0], sinks.Acknowledged, "")
	session := sink.lanes[0].session
	old := session.publisher(sink.channelOf("orders")).shared
	proxy.Blackhole(true)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	requireOutcome(t, sinks.Publish(ctx, sink, []message.Message{newMessage(t, "orders", topic)})[0], sinks.Unknown, sinks.ReasonTimeout)
	proxy.Blackhole(false)
	requireOutcome(t, publish(t, sink, newMessage(t, "orders", topic))[0], sinks.Acknowledged, "")
	require.Same(t, session, sink.lanes[0].session)
	require.NotSame(t, old, session.publisher(sink.channelOf("orders")).shared)
	require.Eventually(t, old.channel.IsClosed, 5*time.Second, time.Millisecond)
	require.Len(t, read(t, url, topic, 3), 3)
}
