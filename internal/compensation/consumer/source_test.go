package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

// onEach runs a case on all brokers.
func onEach(t *testing.T, test func(*testing.T, place)) {
	t.Parallel()
	for name, open := range brokers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t).place(t))
		})
	}
}

// TestHandledOnce: what was acknowledged does not come again, not even to the next consumer.
func TestHandledOnce(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		first, second := newRecorder(nil), newRecorder(nil)
		stop := p.start(t, first.handle)
		sink := p.openSink(t)
		publish(t, sink, p.topic, "a", "b", "c")
		first.awaitAll(t, "a", "b", "c")
		stop()
		p.start(t, second.handle)
		publish(t, sink, p.topic, "d")
		second.awaitAll(t, "d")
		require.Equal(t, []string{"d"}, second.seen())
		require.Len(t, first.seen(), 3)
	})
}

// TestRefusedComesAgain: what the handler refuses comes again, before what is
// behind it, and is not acknowledged.
func TestRefusedComesAgain(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		var refusals atomic.Int64
		r := newRecorder(func(body string) error {
			if body == "a" && refusals.Add(1) <= 3 {
				return errors.New("not yet")
			}
			return nil
		})
		p.start(t, r.handle)
		publish(t, p.openSink(t), p.topic, "a")
		r.await(t, "four times", func(seen []string) bool { return len(seen) == 4 })
		if !strings.HasSuffix(t.Name(), "kafka") { // There the first of a generation may be another's.
			require.Empty(t, r.redelivered(), "it is the source that repeats, not the broker")
		}
	})
}

// TestUnacknowledgedComesAgain: the first consumer ends before it has handled the
// messages; the next one gets them, and is told.
func TestUnacknowledgedComesAgain(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		first := newRecorder(func(body string) error {
			if body == "done" {
				return nil
			}
			return errors.New("not now")
		})
		stop := p.start(t, first.handle)
		sink := p.openSink(t)
		publish(t, sink, p.topic, "done")
		first.awaitAll(t, "done")
		publish(t, sink, p.topic, "a", "b")
		first.awaitAll(t, "a")
		stop()
		second := newRecorder(nil)
		p.start(t, second.handle)
		second.awaitAll(t, "a", "b")
		require.Contains(t, second.redelivered(), "a")
		require.NotContains(t, second.seen(), "done")
		publish(t, sink, p.topic, "new")
		second.awaitAll(t, "new")
		require.NotContains(t, second.redelivered(), "new", "not all is marked for ever")
	})
}

// TestHalfOfABatch: what is handled behind what is not does not acknowledge that.
func TestHalfOfABatch(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		made := newRecorder(nil)
		stop := p.start(t, made.handle)
		sink := p.openSink(t)
		publish(t, sink, p.topic, "make the topic")
		made.awaitAll(t, "make the topic")
		stop()
		publish(t, sink, p.topic, "a")
		publish(t, sink, p.topic, "b") // Of the same Key, and so the same partition.
		// A source may see the first before the second has come: then once more.
		for together := false; !together; {
			came := make(chan int, 1)
			stop = p.start(t, func(_ context.Context, batch []*source.Delivery) []error {
				select {
				case came <- len(batch):
				default: // The same batch again.
				}
				refusals := make([]error, len(batch))
				refusals[0] = errors.New("not now")
				return refusals
			})
			together = <-came > 1
			stop()
		}
		second := newRecorder(nil)
		p.start(t, second.handle)
		second.awaitAll(t, "a")
	})
}

// TestStopWaitsForHandler: what the handler does at the last moment is acknowledged.
func TestStopWaitsForHandler(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		entered, release := make(chan struct{}), make(chan struct{})
		var handled atomic.Bool
		stop := p.start(t, func(_ context.Context, batch []*source.Delivery) []error {
			close(entered)
			<-release
			handled.Store(true)
			return make([]error, len(batch))
		})
		sink := p.openSink(t)
		publish(t, sink, p.topic, "a")
		<-entered
		var stopping sync.WaitGroup
		stopping.Go(func() {
			stop()
			assert.True(t, handled.Load(), "Run returns after the handler")
		})
		close(release)
		stopping.Wait()
		second := newRecorder(nil)
		p.start(t, second.handle)
		publish(t, sink, p.topic, "b")
		second.awaitAll(t, "b")
		require.Equal(t, []string{"b"}, second.seen())
	})
}

// TestBridgesShare: two consumers of one group each get a part, and together all.
func TestBridgesShare(t *testing.T) {
	onEach(t, func(t *testing.T, p place) {
		one, two := newRecorder(nil), newRecorder(nil)
		p.start(t, one.handle)
		p.start(t, two.handle)
		sink := p.openSink(t)
		var all []string
		deadline := time.Now().Add(patience)
		// Until both have joined, one gets everything.
		for i := 0; len(one.seen()) == 0 || len(two.seen()) == 0; i++ {
			require.True(t, time.Now().Before(deadline), "one gets all")
			var bodies []string
			for n := range 20 {
				bodies = append(bodies, fmt.Sprintf("%d-%d", i, n))
			}
			publish(t, sink, p.topic, bodies...)
			all = append(all, bodies...)
		}
		require.Eventually(t, func() bool {
			seen := append(one.seen(), two.seen()...)
			return !slices.ContainsFunc(all, func(body string) bool { return !slices.Contains(seen, body) })
		}, patience, 20*time.Millisecond)
	})
}

// TestBrokerRestart: the source finds the broker again by itself.
func TestBrokerRestart(t *testing.T) {
	t.Parallel()
	for name, open := range privates {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, server := open(t)
			p := b.place(t)
			r := newRecorder(nil)
			p.start(t, r.handle)
			sink := p.openSink(t)
			publish(t, sink, p.topic, "a")
			r.awaitAll(t, "a")
			server.Kill()
			server.Start()
			back := time.Now()
			publish(t, sink, p.topic, "b")
			r.awaitAll(t, "b")
			t.Logf("%s: first message %s after the broker's return", name, time.Since(back).Round(time.Millisecond))
		})
	}
}

// TestQueueOfOthers: a queue of that name is taken as it is.
func TestQueueOfOthers(t *testing.T) {
	t.Parallel()
	p := rabbitBroker(testenvRabbit(t), "").place(t)
	channel := amqpChannel(t)
	_, err := channel.QueueDeclare(p.topic, true, false, false, false, map[string]any{"x-max-length": 1000})
	require.NoError(t, err)
	r := newRecorder(nil)
	p.start(t, r.handle)
	publish(t, p.openSink(t), p.topic, "a")
	r.awaitAll(t, "a")
}

// TestNamedExchange: the queue is bound by the topic; the exchange is the operator's.
func TestNamedExchange(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"direct", "topic", "fanout"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			exchange := "x-" + strings.ToLower(kind) + "-" + t.Name()[len(t.Name())-5:] + randomSuffix(t)
			channel := amqpChannel(t)
			require.NoError(t, channel.Confirm(false))
			returns := channel.NotifyReturn(make(chan amqp.Return, 16))
			require.NoError(t, channel.ExchangeDeclare(exchange, kind, true, false, false, false, nil))
			p := rabbitBroker(testenvRabbit(t), exchange).place(t)
			r := newRecorder(nil)
			p.start(t, r.handle)
			sink := p.openSink(t)
			publish(t, sink, p.topic, "a")
			r.awaitAll(t, "a")
			if kind == "fanout" {
				publish(t, sink, "order.timeout", "not ours")
				// The queues are bound no more, so that they do not fill with copies.
				require.Eventually(t, func() bool {
					queue, err := channel.QueueDeclarePassive(p.topic, true, false, false, false, nil)
					return err == nil && queue.Messages == 0 && unroutable(channel, returns, exchange)
				}, patience, 100*time.Millisecond)
				require.Equal(t, []string{"a"}, r.seen())
			}
		})
	}
}

// TestIdle measures a source that has nothing to do. Not parallel: it looks at
// the time of the whole process.
func TestIdle(t *testing.T) { //nolint:paralleltest // see above
	for name, open := range brokers {
		t.Run(name, func(t *testing.T) {
			p := open(t).place(t)
			r := newRecorder(nil)
			p.start(t, r.handle)
			publish(t, p.openSink(t), p.topic, "a")
			r.awaitAll(t, "a")
			const window = 3 * time.Second
			before := processTime(t)
			timer := time.NewTimer(window)
			<-timer.C
			used := processTime(t) - before
			t.Logf("%s: %s of the processor in %s", name, used, window)
			require.Less(t, used, window/5)
			require.Len(t, r.seen(), 1)
		})
	}
}

func processTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
