package inspect_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// BenchmarkForecast is a forecast of 1,440 steps over a million messages in 8 shards,
// and what somebody else waits for Redis meanwhile.
func BenchmarkForecast(b *testing.B) {
	rdb := shared(b)
	q := storetest.New(b, rdb, 8)
	million(b, q)
	ctx, cancel := context.WithCancel(b.Context())
	var waits []time.Duration
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			began := time.Now()
			if rdb.Ping(ctx).Err() == nil {
				waits = append(waits, time.Since(began))
			}
		}
	}()
	for b.Loop() {
		f, err := inspect.NewAdmin(q).Forecast(b.Context(), time.Time{}, time.Now().Add(24*time.Hour), time.Minute)
		require.NoError(b, err)
		sum := f.Due + f.Before + f.Later
		for _, n := range f.Steps {
			sum += n
		}
		require.EqualValues(b, 1_000_000, sum)
	}
	cancel()
	<-done
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)/2].Microseconds()), "ping-p50-µs")
	b.ReportMetric(float64(waits[len(waits)*99/100].Microseconds()), "ping-p99-µs")
	b.ReportMetric(float64(waits[len(waits)-1].Microseconds()), "ping-max-µs")
}

// million schedules as many messages, due over a day.
func million(b *testing.B, q *store.Queue) {
	b.Helper()
	const messages, batch = 1_000_000, 4000
	for n := 0; n < messages; n += batch {
		requests := make([]store.Request, batch)
		for i := range requests {
			requests[i] = store.Request{Message: storetest.Note(fmt.Sprint("m-", n+i), "body"), When: store.When{Relative: true, Ms: int64((n+i)%1440+2) * 60_000}}
		}
		for _, answer := range q.Producer().Schedule(b.Context(), requests, false, store.Durability{}) {
			require.NoError(b, answer.Err)
		}
	}
}
