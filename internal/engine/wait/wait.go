// Package wait holds the ways to wait that everything else shares: a sleep
// that ends with a context or a wake-up, and a pause that grows with each failure in a row.
//
// It does not know what its callers wait for, and starts no goroutine.
package wait

import (
	"context"
	"math/rand/v2"
	"time"
)

// Began is when the process began; the process' common instants count from it. Only a
// simulation sets it, before anything runs.
var Began = time.Now()

// Never is later than any instant to wait for, and so is the sum of it and an instant.
const Never time.Duration = 1 << 62

// Sleep waits, and returns false if ctx ended first. A duration of 0 or less
// does not wait.
func Sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// SleepOrWake waits for d, or until something is received from wake, and returns
// false if ctx has ended.
func SleepOrWake(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// Wake signals through a channel of capacity 1 that something has happened. It does not
// block: a signal that is already there suffices.
func Wake(flag chan<- struct{}) {
	select {
	case flag <- struct{}{}:
	default:
	}
}

// Rest returns how long to rest after work that took that long, so that it takes at
// most a twentieth of the time however much there is to do.
func Rest(took time.Duration) time.Duration { return 20 * took }

// jitter is how far a pause may differ from its nominal length, either way, so
// that processes do not retry in step.
const jitter = 0.2

// Backoff is a pause that doubles with each failure in a row, with 20 % jitter.
// The zero value pauses not at all. It is not safe for concurrent use.
type Backoff struct {
	// Initial is the first pause, Limit the longest.
	Initial, Limit time.Duration
	// Random is where the jitter comes from, in [0, 1); by default from nowhere that can
	// be told before.
	Random   func() float64
	failures int
}

// Next counts a failure and returns how long to pause: never more than Limit.
func (b *Backoff) Next() time.Duration {
	b.failures = min(b.failures+1, 1<<20)
	random := b.Random
	if random == nil {
		random = rand.Float64
	}
	return Exponential(b.Initial, b.Limit, b.failures, random())
}

// Failures is how many there were in a row.
func (b *Backoff) Failures() int { return b.failures }

// Reset forgets the failures.
func (b *Backoff) Reset() { b.failures = 0 }

// Exponential is initial doubled (failures-1) times, at most limit, with jitter.
// random is in [0, 1). The result never exceeds limit.
func Exponential(initial, limit time.Duration, failures int, random float64) time.Duration {
	pause := initial
	for range failures - 1 {
		if pause > limit/2 {
			pause = limit
			break
		}
		pause *= 2
	}
	pause = min(pause, limit)
	return min(limit, time.Duration(float64(pause)*(1-jitter+2*jitter*random)))
}
