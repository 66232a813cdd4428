// Package ratetest has a bucket in memory, for tests.
package ratetest

import (
	"context"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Bucket has the rules of the store's: a second's worth at most, and nothing at first.
type Bucket struct {
	mu    sync.Mutex
	until map[string]time.Time // the rate is used up
	Calls int
	Err   error
	Hangs bool          // until its context ends
	IsDry bool          // it grants nothing
	Takes time.Duration // a call
}

// TakeRates implements [rate.Bucket].
func (f *Bucket) TakeRates(ctx context.Context, asked []message.RateRequest) (granted []int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Calls++
	if f.Hangs {
		f.mu.Unlock()
		<-ctx.Done()
		f.mu.Lock()
		return nil, ctx.Err()
	}
	if f.Takes > 0 {
		f.mu.Unlock()
		time.Sleep(f.Takes) //nolint:forbidigo // a bubble's clock
		f.mu.Lock()
	}
	if f.until == nil {
		f.until = map[string]time.Time{}
	}
	now := time.Now()
	for _, r := range asked {
		until, isKnown := f.until[r.Topic]
		if !isKnown {
			until = now
		}
		if saved := now.Add(-time.Second - min(time.Second/5, time.Second/time.Duration(r.Rate)-1)); until.Before(saved) {
			until = saved
		}
		n := min(r.Messages, int(now.Sub(until)*time.Duration(r.Rate)/time.Second))
		if f.IsDry {
			n = min(n, 0)
		}
		f.until[r.Topic] = until.Add(time.Duration(n) * time.Second / time.Duration(r.Rate))
		granted = append(granted, n)
	}
	return granted, f.Err
}

// Set changes or reads its fields.
func (f *Bucket) Set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}
