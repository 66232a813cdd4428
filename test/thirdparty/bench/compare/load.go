package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	shards    = 8
	batchSize = 500
	patience  = 30 * time.Second // a busy machine is no error
)

// body is text, so that those who carry JSON need not encode it.
var body = []byte(strings.Repeat("0123456789abcdef", 16))

// identity is a message's, as long as a ULID; indexOf is its number again.
func identity(i int) string { return fmt.Sprintf("m-%024d", i) }

func indexOf(id string) (int, error) { return strconv.Atoi(strings.TrimPrefix(id, "m-")) }

// load is some messages to be scheduled, in calls of so many, by so many callers.
type load struct {
	first, count, size, callers int
	// due is when the first one is due, each further one a step later.
	due  time.Time
	step time.Duration
}

func (l load) dueAt(i int) time.Time { return l.due.Add(time.Duration(i-l.first) * l.step) }

// by makes the calls, each with the number of its first message.
func (l load) by(ctx context.Context, call func(ctx context.Context, from, n int) error) error {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range l.callers {
		group.Go(func() error {
			for {
				at := int(next.Add(int64(l.size))) - l.size
				if at >= l.count {
					return nil
				}
				if err := call(ctx, l.first+at, min(l.size, l.count-at)); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}

// arrivals notes when each message of a load was delivered. It is safe for
// concurrent use.
type arrivals struct {
	first int
	at    []atomic.Int64 // by number, Unix time in nanoseconds
	left  atomic.Int64
	twice atomic.Int64
	done  chan struct{} // closed when all have come
}

func newArrivals(l load) *arrivals {
	a := &arrivals{first: l.first, at: make([]atomic.Int64, l.count), done: make(chan struct{})}
	a.left.Store(int64(l.count))
	return a
}

// note notes an arrival now. Those of another load do not count.
func (a *arrivals) note(id string) { a.noteAt(id, time.Now()) }

func (a *arrivals) noteAt(id string, at time.Time) {
	i, err := indexOf(id)
	if i -= a.first; err != nil || i < 0 || i >= len(a.at) {
		return
	}
	if !a.at[i].CompareAndSwap(0, at.UnixNano()) {
		a.twice.Add(1)
		return
	}
	if a.left.Add(-1) == 0 {
		close(a.done)
	}
}

// wait returns when all have come, and when each one came.
func (a *arrivals) wait(ctx context.Context) ([]time.Time, error) {
	select {
	case <-a.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("%d of %d messages have not come: %w", a.left.Load(), len(a.at), ctx.Err())
	}
	list := make([]time.Time, len(a.at))
	for i := range a.at {
		list[i] = time.Unix(0, a.at[i].Load())
	}
	return list, nil
}

// taker is whom messages are delivered to: a handler that does nothing but note
// them.
type taker struct{ to atomic.Pointer[arrivals] }

func (t *taker) note(id string) {
	if to := t.to.Load(); to != nil {
		to.note(id)
	}
}

// sleepUntil returns early, with an error, when ctx ends.
func sleepUntil(ctx context.Context, at time.Time) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Until(at)):
		return nil
	}
}
