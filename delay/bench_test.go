package delay_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// BenchmarkSchedule tells what a message costs the producer: by a lone caller, by 64
// at a time, and in batches of 500 over four shards.
func BenchmarkSchedule(b *testing.B) {
	var last atomic.Int64
	request := func() delay.Request {
		m := delay.Message{ID: fmt.Sprintf("m-%024d", last.Add(1)), Topic: "topic", Body: make([]byte, 256)}
		return delay.Request{Message: m, When: delay.After(time.Hour)}
	}
	one := func(b *testing.B, client *delay.Client) {
		r := request()
		_, err := client.Schedule(b.Context(), r.Message, r.When)
		require.NoError(b, err)
	}
	b.Run("lone", func(b *testing.B) {
		client := newWorld(b, message.NATS).client(b)
		b.ReportAllocs()
		for b.Loop() {
			one(b, client)
		}
	})
	b.Run("64 callers", func(b *testing.B) {
		client := newWorld(b, message.NATS).client(b)
		b.ReportAllocs()
		b.SetParallelism(64)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				one(b, client)
			}
		})
	})
	b.Run("batches", func(b *testing.B) {
		client := newWorld(b, message.NATS).client(b)
		b.ReportAllocs()
		for range b.N / 500 {
			requests := make([]delay.Request, 500)
			for i := range requests {
				requests[i] = request()
			}
			_, err := client.ScheduleBatch(b.Context(), requests)
			require.NoError(b, err)
		}
	})
}
