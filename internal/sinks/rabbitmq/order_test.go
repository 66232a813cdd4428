package rabbitmq

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// TestOrderAmongSizes publishes more than a channel holds, with larger and larger
// messages among small ones, which go alone.
func TestOrderAmongSizes(t *testing.T) {
	t.Parallel()
	url, topic := testenv.RabbitMQ(t), testenv.Name(t, "topic")
	declare(t, url, topic, nil)
	sink := newSink(t, Config{URL: url, Connections: 1})
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

// TestGivenUp gives up waiting for a route: its channel is closed, and the next
// call uses another one of the same connection.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	url, topic := testenv.RabbitMQ(t), testenv.Name(t, "topic")
	declare(t, url, topic, nil)
	proxy := testenv.NewProxy(t, address(t, url))
	sink := newSink(t, Config{URL: withAddress(t, url, proxy.Addr()), Connections: 1, PublishTimeout: time.Second})
	requireOutcome(t, publish(t, sink, newMessage(t, "orders", topic))[0], sinks.Acknowledged, "")
	connection := connectionOf(t, sink)
	proxy.Blackhole(true)
	outcome := publish(t, sink, newMessage(t, "orders", topic))[0]
	requireOutcome(t, outcome, sinks.Unknown, sinks.ReasonTimeout)
	require.False(t, outcome.Whole, "for all we know it is the route's")
	proxy.Blackhole(false)
	requireOutcome(t, publish(t, sink, newMessage(t, "orders", topic))[0], sinks.Acknowledged, "")
	require.Same(t, connection, connectionOf(t, sink))
	require.Len(t, read(t, url, topic, 3), 3)
}
