//go:build unix

package sinktest

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// Side is one way to publish: through a sink, or with the client library alone.
type Side struct {
	Name string
	// Publish returns when all of the batch is acknowledged.
	Publish func(batch []message.Message)
}

// Through publishes through a sink, and fails what is not acknowledged.
func Through(b *testing.B, sink sinks.Publisher) Side {
	b.Helper()
	return Side{Name: "sink", Publish: func(batch []message.Message) {
		for _, outcome := range sinks.Publish(b.Context(), sink, batch) {
			if outcome.Class != sinks.Acknowledged {
				b.Errorf("%s: %v", outcome.Class, outcome.Err)
				return
			}
		}
	}}
}

// Keys are the Keys of a benchmark's messages, by their number in the batch.
var Keys = map[string]func(i int) string{
	"no_key":      func(int) string { return "" },
	"unique_keys": func(i int) string { return "key-" + strconv.Itoa(i) },
	"100_keys":    func(i int) string { return "key-" + strconv.Itoa(i%100) },
}

// Batches makes that many batches of 500 messages like the template, with bodies of 256 bytes.
func Batches(template message.Message, count int, key func(i int) string) [][]message.Message {
	const size = 500
	template.Body = make([]byte, 256)
	batches := make([][]message.Message, count)
	for i := range batches {
		batches[i] = slices.Repeat([]message.Message{template}, size)
		for j := range batches[i] {
			batches[i][j].Key = key(j)
			batches[i][j].ID = fmt.Sprintf("order-%020d", i*size+j)
		}
	}
	return batches
}

// Beside has each side publish in turn, from so many callers at once, and reports
// what a message costs this process on each side: CPU time, allocations, and how
// many are published a second. batches returns what is published in a turn. A CPU profile has the label "side".
func Beside(b *testing.B, callers int, batches func() [][]message.Message, sides ...Side) {
	b.Helper()
	costs := make([]cost, len(sides))
	for b.Loop() {
		for i, side := range sides {
			costs[i].add(measure(callers, batches(), side))
		}
	}
	for i, side := range sides {
		c, messages := costs[i], float64(costs[i].messages)
		b.ReportMetric(float64(c.cpu.Nanoseconds())/1000/messages, side.Name+"-µs/msg")
		b.ReportMetric(float64(c.allocations)/messages, side.Name+"-allocs/msg")
		b.ReportMetric(messages/c.took.Seconds(), side.Name+"-msgs/s")
	}
	b.ReportMetric(0, "ns/op")
}

// cost is what publishing has cost this process.
type cost struct {
	messages    int
	took, cpu   time.Duration
	allocations uint64
}

func (c *cost) add(more cost) {
	c.messages += more.messages
	c.took += more.took
	c.cpu += more.cpu
	c.allocations += more.allocations
}

// measure publishes the first batch unmeasured: it connects.
func measure(callers int, batches [][]message.Message, side Side) (c cost) {
	pprof.Do(context.Background(), pprof.Labels("side", side.Name), func(context.Context) {
		side.Publish(batches[0])
		work := make(chan []message.Message, len(batches))
		for _, batch := range batches[1:] {
			work <- batch
			c.messages += len(batch)
		}
		close(work)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		began, cpu := time.Now(), cpuTime()
		var publishing sync.WaitGroup
		for range callers {
			publishing.Go(func() {
				for batch := range work {
					side.Publish(batch)
				}
			})
		}
		publishing.Wait()
		c.took, c.cpu = time.Since(began), cpuTime()-cpu
		runtime.ReadMemStats(&after)
		c.allocations = after.Mallocs - before.Mallocs
	})
	return c
}

// Allocations is how many allocations a message of such a batch takes, in the
// whole process and at the best of some batches. No parallel test may run.
func Allocations(batch func() []message.Message, publish func([]message.Message)) float64 {
	publish(batch()) // It connects.
	least := math.Inf(1)
	for range 5 {
		published := batch()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		publish(published)
		runtime.ReadMemStats(&after)
		least = min(least, float64(after.Mallocs-before.Mallocs)/float64(len(published)))
	}
	return least
}

// cpuTime is what this process has used, in user and system mode.
func cpuTime() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // It never fails for oneself.
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
