package rabbitmq

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// result is what the sink said of a message, and whether the queue has it.
type result struct {
	class  sinks.Class
	reason sinks.Reason
	stored bool
}

// TestAKilledQueue kills the process of a classic queue under load: RabbitMQ nacks
// what it has lost sight of, of which the queue may find some on its disk again, so
// nobody knows of any. What is said to be certain must be so.
func TestAKilledQueue(t *testing.T) {
	t.Parallel()
	server := testenv.StartRabbitMQ(t, "")
	counts := killUnderLoad(t, server, newSink(t, Config{URL: server.URL()}))
	nacked := 0
	for s, n := range counts {
		require.False(t, s.class == sinks.Unavailable && s.stored, "said not to be stored, and is: %v", counts)
		require.False(t, s.class == sinks.Acknowledged && !s.stored, "said to be stored, and is not: %v", counts)
		if s.class == sinks.Unknown && s.reason == sinks.ReasonRefused {
			nacked += n
		}
	}
	require.Positive(t, nacked, "none was nacked: %v", counts)
}

// killUnderLoad publishes to a new queue, whose process dies some times meanwhile: its
// supervisor forgives five deaths.
func killUnderLoad(t *testing.T, server *testenv.Server, sink *Sink) map[result]int {
	t.Helper()
	queue := testenv.Name(t, "queue")
	declare(t, server.URL(), queue, nil)
	killed := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		defer close(killed)
		server.RabbitEval(fmt.Sprintf(`[begin {ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"%s">>)),
			exit(amqqueue:get_pid(Q), kill), timer:sleep(500) end || _ <- lists:seq(1, 4)].`, queue))
	})
	var mu sync.Mutex
	told := map[string]sinks.Outcome{}
	for range 4 {
		work.Go(func() {
			for isOver := false; !isOver; {
				select {
				case <-killed:
					isOver = true
				default:
				}
				batch := make([]message.Message, 200)
				for i := range batch {
					batch[i] = newMessage(t, "orders", queue)
					batch[i].Body = make([]byte, 5000)
				}
				outcomes := publish(t, sink, batch...)
				mu.Lock()
				for i, outcome := range outcomes {
					told[batch[i].ID] = outcome
				}
				mu.Unlock()
			}
		})
	}
	work.Wait()
	stored := map[string]bool{}
	for _, d := range read(t, server.URL(), queue, 1) {
		stored[d.MessageId] = true
	}
	counts := map[result]int{}
	for id, outcome := range told {
		counts[result{outcome.Class, outcome.Reason, stored[id]}]++
	}
	return counts
}

// TestAFullTwin has two queues bound to one topic, one of them full: each publish
// that is nacked leaves a copy in the other.
func TestAFullTwin(t *testing.T) {
	t.Parallel()
	url, topic := testenv.RabbitMQ(t), testenv.Name(t, "topic")
	full, other := testenv.Name(t, "full"), testenv.Name(t, "open")
	declare(t, url, full, map[string]any{"x-max-length": 0, "x-overflow": "reject-publish"})
	declare(t, url, other, nil)
	channel := open(t, url)
	for _, queue := range []string{full, other} {
		require.NoError(t, channel.QueueBind(queue, topic, "amq.topic", false, nil))
	}
	sink := newSink(t, Config{URL: url, Exchange: "amq.topic", Connections: 1})
	for range 10 {
		outcome := publish(t, sink, newMessage(t, "orders", topic))[0]
		requireOutcome(t, outcome, sinks.Unknown, sinks.ReasonRefused)
		require.False(t, outcome.Whole)
	}
	require.Len(t, read(t, url, other, 10), 10)
}
