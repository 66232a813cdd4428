package rabbitmq

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/testenv"
)

const (
	benchMessages = 50_000
	benchBatch    = 500
	benchBytes    = 256
)

// keys are how the messages of a batch share Keys: messages of one Key go one
// after the other.
var keys = []struct {
	name     string
	messages int
	key      func(i int) string
}{
	{"unique", benchMessages, func(i int) string { return "key-" + strconv.Itoa(i) }},
	{"none", benchMessages, func(int) string { return "" }},
	{"one", benchMessages / 10, func(int) string { return "key" }},
}

// BenchmarkPublish publishes messages of 256 B in batches of 500, through the
// sink and through the driver alone with as many connections, to classic and
// quorum queues of the same broker. Run it with -benchtime=1x.
func BenchmarkPublish(b *testing.B) {
	url := testenv.RabbitMQ(b)
	for _, kind := range []string{"classic", "quorum"} {
		for _, callers := range []int{1, 4, 8} {
			for _, k := range keys {
				b.Run(fmt.Sprintf("%s/sink/%s/%d_callers", kind, k.name, callers), func(b *testing.B) {
					sink := newSink(b, Config{Name: "bench", URLs: []string{url}})
					run(b, url, kind, k.messages, callers, k.key, func(batch []message.Message) {
						for _, outcome := range publish(b, sink, batch...) {
							if outcome.Class != sinks.Acknowledged {
								b.Errorf("%s: %v", outcome.Class, outcome.Err)
								return
							}
						}
					})
				})
			}
		}
		b.Run(kind+"/driver/4_callers", func(b *testing.B) {
			channels := make(chan *amqp.Channel, 4)
			for range cap(channels) {
				channel := open(b, url)
				require.NoError(b, channel.Confirm(false))
				channels <- channel
			}
			run(b, url, kind, benchMessages, cap(channels), keys[0].key, func(batch []message.Message) {
				channel := <-channels
				publishRaw(b, channel, batch)
				channels <- channel
			})
		})
	}
}

// run lets the callers publish batches, and reports the rate and the latency of
// a batch.
func run(b *testing.B, url, kind string, messages, callers int, key func(int) string, publish func([]message.Message)) {
	b.Helper()
	var mu sync.Mutex
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		queue := testenv.Name(b, "bench")
		declare(b, url, queue, amqp.Table{"x-queue-type": kind})
		batches := make(chan []message.Message, messages/benchBatch)
		for range cap(batches) {
			batches <- benchmarkBatch(b, queue, key)
		}
		close(batches)
		b.StartTimer()
		var callersDone sync.WaitGroup
		for range callers {
			callersDone.Go(func() {
				for batch := range batches {
					start := time.Now()
					publish(batch)
					mu.Lock()
					took = append(took, time.Since(start))
					mu.Unlock()
				}
			})
		}
		callersDone.Wait()
		b.StopTimer()
		channel := open(b, url)
		_, err := channel.QueueDelete(queue, false, false, false)
		require.NoError(b, err)
		b.StartTimer()
	}
	slices.Sort(took)
	b.ReportMetric(float64(messages*b.N)/b.Elapsed().Seconds(), "msgs/s")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/batch-p50")
}

func benchmarkBatch(b *testing.B, queue string, key func(int) string) []message.Message {
	batch := make([]message.Message, benchBatch)
	for i := range batch {
		batch[i] = newMessage(b, "bench", queue)
		batch[i].Key = key(i)
		batch[i].Body = make([]byte, benchBytes)
	}
	return batch
}

// publishRaw is what the driver can do: the same messages, one confirmation
// each, one batch at a time.
func publishRaw(b *testing.B, channel *amqp.Channel, batch []message.Message) {
	confirmations := make([]*amqp.DeferredConfirmation, len(batch))
	for i := range batch {
		p, _ := newPublishing(&batch[i], 0)
		var err error
		confirmations[i], err = channel.PublishWithDeferredConfirm("", batch[i].Topic, true, false, *p)
		if err != nil {
			b.Error(err)
			return
		}
	}
	for _, c := range confirmations {
		if !c.Wait() {
			b.Error("not acknowledged")
		}
	}
}
