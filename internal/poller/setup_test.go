package poller

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"

	"github.com/stretchr/testify/require"
)

// bench is a poller of one shard with its fakes.
type bench struct {
	*Poller
	store    *fakeStore
	sink     *fakeSink
	observer *recorder
	logs     *testenv.Log
	slots    int // of a shard; 0 is as many as there are
}

// setup starts a poller in a bubble; the test stops it, or cleanup does.
func setup(t *testing.T, adjust ...func(*Config, *bench)) *bench {
	t.Helper()
	b := &bench{store: newFakeStore(), sink: &fakeSink{}, observer: &recorder{}, logs: &testenv.Log{}}
	config := Config{
		Queue: "q", Instance: "me", Shards: []int{0}, Sink: Sink{Sink: b.sink, Name: "s"}, Store: b.store.shard,
		Observer: b.observer, Logger: slog.New(slog.NewTextHandler(b.logs, nil)),
	}
	for _, f := range adjust {
		f(&config, b)
	}
	poller, err := New(config)
	require.NoError(t, err)
	poller.queue.phase = 0 // The bubble has a clock of its own.
	if b.slots > 0 {
		poller.queue.slots = b.slots
	}
	b.Poller = poller
	require.NoError(t, poller.Start(t.Context()))
	t.Cleanup(func() { _ = poller.Stop(context.WithoutCancel(t.Context())) })
	return b
}

func (b *bench) stop(t *testing.T, budget time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), budget)
	defer cancel()
	return b.Stop(ctx)
}

// verdictCounts counts settled messages by verdict.
type verdictCounts struct {
	published, retried, deadLettered, released, parked int
	suspected                                          int // copies that are out, or may be, while an earlier one may be
}

// recorder is an Observer.
type recorder struct {
	mu                     sync.Mutex
	latenesses             []time.Duration
	failures               map[string]int
	missing                []string
	settled                verdictCounts
	reclaimed              int
	decodeErrors, stale    int
	inFlight, inFlightMost atomic.Int64
}

func (r *recorder) ObserveLateness(_ string, lateness time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latenesses = append(r.latenesses, lateness)
}

func (r *recorder) PublishFailure(_, class, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failures == nil {
		r.failures = map[string]int{}
	}
	r.failures[class+" "+reason]++
}

func (r *recorder) AddInFlight(_ string, delta int) {
	now := r.inFlight.Add(int64(delta))
	if now > r.inFlightMost.Load() {
		r.inFlightMost.Store(now)
	}
}

func (r *recorder) SinkMissing(_, topic string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.missing = append(r.missing, topic)
}

func (r *recorder) Settled(_ string, n [message.VerbDrop + 1]int, suspected int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled.published += n[message.VerbAck]
	r.settled.retried += n[message.VerbRetry]
	r.settled.deadLettered += n[message.VerbDeadLetter]
	r.settled.released += n[message.VerbRelease]
	r.settled.parked += n[message.VerbPark]
	r.settled.suspected += suspected
}

func (r *recorder) Reclaimed(_ string, messages int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reclaimed += messages
}

func (r *recorder) DecodeError(string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.decodeErrors++
}

func (r *recorder) Stale(string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stale++
}

func (r *recorder) read(look func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	look()
}

// pass lets time pass in a bubble, until everything that is due by then is
// done. Between two calls the test may read and change the fakes.
func (b *bench) pass(d time.Duration) {
	for _, mu := range []*sync.Mutex{&b.store.mu, &b.sink.mu, &b.observer.mu} {
		mu.Lock()   // For the race detector: what the test did is over.
		mu.Unlock() //nolint:staticcheck // See above.
	}
	time.Sleep(d) //nolint:forbidigo // The bubble's clock: nothing is waited for.
	synctest.Wait()
}
