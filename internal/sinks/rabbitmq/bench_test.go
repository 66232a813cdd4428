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

// BenchmarkPublish publishes 50,000 messages of 256 B in batches of 500,
// through the sink and through the driver alone with as many connections, to
// classic and quorum queues of the same broker. Run it with -benchtime=1x.
func BenchmarkPublish(b *testing.B) {
	url := testenv.RabbitMQ(b)
	for _, kind := range []string{"classic", "quorum"} {
		for _, callers := range []int{4, 8} {
			b.Run(fmt.Sprintf("%s/sink/%d_callers", kind, callers), func(b *testing.B) {
				sink := newSink(b, Config{Name: "bench", URLs: []string{url}})
				run(b, url, kind, callers, func(batch []message.Message) {
					for _, outcome := range publish(b, sink, batch...) {
						if outcome.Class != sinks.Acknowledged {
							b.Errorf("%s: %v", outcome.Class, outcome.Err)
							return
						}
					}
				})
			})
		}
		b.Run(kind+"/driver/4_callers", func(b *testing.B) {
			channels := make(chan *amqp.Channel, 4)
			for range cap(channels) {
				channel := open(b, url)
				require.NoError(b, channel.Confirm(false))
				channels <- channel
			}
			run(b, url, kind, cap(channels), func(batch []message.Message) {
				channel := <-channels
				publishRaw(b, channel, batch)
				channels <- channel
			})
		})
	}
}

// run lets the callers publish batches of their own keys, and reports the rate
// and the latency of a batch.
func run(b *testing.B, url, kind string, callers int, publish func([]message.Message)) {
	b.Helper()
	var mu sync.Mutex
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		queue := testenv.Name(b, "bench")
		declare(b, url, queue, amqp.Table{"x-queue-type": kind})
		batches := make(chan []message.Message, benchMessages/benchBatch)
		for range cap(batches) {
			batches <- benchmarkBatch(b, queue)
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
	b.ReportMetric(float64(benchMessages*b.N)/b.Elapsed().Seconds(), "msgs/s")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms/batch-p50")
}

func benchmarkBatch(b *testing.B, queue string) []message.Message {
	batch := make([]message.Message, benchBatch)
	for i := range batch {
		batch[i] = newMessage(b, "bench", queue)
		batch[i].Key = "key-" + strconv.Itoa(i%100)
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
