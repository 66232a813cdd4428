package store_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/store"
	"github.com/delaybridge/delaybridge/internal/store/storetest"
)

// BenchmarkClaimSettle tells what a message costs Redis from its claim to its
// acknowledgement, in batches of 500: microseconds of its main thread.
func BenchmarkClaimSettle(b *testing.B) {
	const batch = 500
	rdb := connect(b, testenvPrivate(b))
	q := storetest.New(b, rdb, 1)
	bridge := newBridge(b, q)
	list := make([]store.Request, batch)
	for i := range list {
		m := &message.Message{ID: fmt.Sprintf("%026d", i), Topic: "t", Body: bytes.Repeat([]byte("x"), 256)}
		list[i] = store.Request{Message: m, When: past()}
	}
	var spent float64
	for range b.N {
		q.Producer().Schedule(b.Context(), list, false, store.Durability{})
		before := busy(b, rdb)
		bridge.settle(bridge.claim(batch), acked)
		spent += (busy(b, rdb) - before).Seconds() * 1e6
	}
	b.ReportMetric(spent/float64(b.N*batch), "µs/message")
}
