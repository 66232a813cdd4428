// Package consumers has what all runs of consumers share whose messages are delivered again by package delay/retry: a
// world, a producer, a handler that fails, and a check of each repetition. The consumers themselves are in the
// tests, as docs/retry.md shows them.
package consumers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/retry"
	"github.com/delaybridge/delaybridge/test/trial"
)

const (
	messages = 120
	limit    = 3
	patience = 3 * time.Minute
)

// Handler handles a message.
type Handler func(ctx context.Context, m retry.Message) error

// Client is a broker's client under test.
type Client struct {
	Broker string
	// Consume consumes the world's topic until ctx ends or the consumer dies.
	Consume func(ctx context.Context, w *trial.World, again *retry.Retrier, handle Handler) error
	// Publisher publishes as this client's producers do. Default: the broker's.
	Publisher func(ctx context.Context, w *trial.World) (publish outbox.Publisher, end func(), err error)
}

// seen is what a run's consumers have seen. The messages are handled at their limit-th repetition, every tenth never.
type seen struct {
	mu       sync.Mutex
	uids     map[string]map[string]bool // of the deliveries, by body and attempt
	handled  map[string]bool            // bodies
	lateness []time.Duration
	done     chan struct{} // closed when all are handled that can be
}

func isHopeless(body string) bool { return body[len(body)-1] == '7' }

var errBusy = errors.New("busy")

func (s *seen) handle(_ context.Context, m retry.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	body, attempt := string(m.Body), m.Attempt()
	if d, err := delay.ReadHeaders(func(name string) string { return m.Headers[name] }); err == nil {
		id := fmt.Sprint(body, " ", attempt)
		if s.uids[id] == nil {
			s.uids[id] = map[string]bool{}
			s.lateness = append(s.lateness, time.Since(d.DueAt))
		}
		s.uids[id][d.UID] = true
	}
	if attempt < limit || isHopeless(body) {
		return errBusy
	}
	if s.handled[body] = true; len(s.handled) == messages-messages/10 {
		select {
		case <-s.done:
		default:
			close(s.done)
		}
	}
	return nil
}

// forgetful is a queue whose caller sometimes dies after the call, so that the message is delivered again.
type forgetful struct{ delay.Scheduler }

// ErrDied is why a consumer ends that has died.
var ErrDied = errors.New("the consumer died")

func (f forgetful) Schedule(ctx context.Context, m delay.Message, when delay.When, opts ...delay.CallOption) (delay.Result, error) {
	result, err := f.Scheduler.Schedule(ctx, m, when, opts...)
	if err == nil && rand.IntN(8) == 0 { //nolint:gosec // any will do
		err = ErrDied
	}
	return result, err
}

// Revive runs a consumer until ctx ends, and begins again when it dies.
func Revive(ctx context.Context, t *testing.T, consume func(context.Context) error) {
	t.Helper()
	died := 0
	for ctx.Err() == nil {
		err := consume(ctx)
		if died++; ctx.Err() == nil && !errors.Is(err, ErrDied) {
			t.Log("the consumer begins again: ", err)
		}
	}
	t.Log("the consumer began ", died, " times")
}

// Run has messages delivered again as often as they must, though consumers die after they have handed them over,
// and the bridge is killed; each repetition is scheduled once.
func Run(t *testing.T, binary string, client Client) {
	t.Helper()
	w, err := trial.NewWorld(t.Context(), trial.Options{Binary: binary, Broker: client.Broker, Shards: 2})
	require.NoError(t, err)
	defer w.Close()
	const dead = "dead-letters"
	require.NoError(t, w.Broker.MakeTopic(t.Context(), dead))
	again, err := retry.New(forgetful{w.Client}, retry.Policy{
		Limit: limit, Delay: retry.Exponential(time.Millisecond, time.Second), DeadTopic: dead,
	})
	require.NoError(t, err)
	s := &seen{uids: map[string]map[string]bool{}, handled: map[string]bool{}, done: make(chan struct{})}
	ctx, stop := context.WithCancel(t.Context())
	var consumers sync.WaitGroup
	defer consumers.Wait()
	defer stop()
	consumers.Go(func() {
		Revive(ctx, t, func(ctx context.Context) error { return client.Consume(ctx, w, again, s.handle) })
	})
	defer publishAll(t, w, client)() // A connection that is closed at once may take its last messages with it.
	select {
	case <-s.done:
	case <-time.After(patience):
		require.Fail(t, "messages are missing")
	}
	want := int64(messages / 10)
	require.Eventually(t, func() bool {
		stored, err := w.Broker.Stored(t.Context(), dead)
		return err == nil && stored >= want
	}, patience, 50*time.Millisecond)
	stop()
	consumers.Wait()
	stored, err := w.Broker.Stored(t.Context(), dead)
	require.NoError(t, err)
	require.Equal(t, want, stored)
	s.check(t)
}

// publishAll publishes the messages, and kills the bridge half-way. end closes the publisher.
func publishAll(t *testing.T, w *trial.World, client Client) (end func()) {
	t.Helper()
	connect := client.Publisher
	if connect == nil {
		connect = func(_ context.Context, w *trial.World) (outbox.Publisher, func(), error) {
			return w.Broker.Publisher(patience)
		}
	}
	publish, end, err := connect(t.Context(), w)
	require.NoError(t, err)
	for i := range messages {
		require.NoError(t, publish(t.Context(), w.Topic, nil, fmt.Append(nil, "order ", i)))
		if i == messages/2 {
			require.NoError(t, w.Bridge.Kill())
			require.NoError(t, w.Bridge.Start(t.Context()))
		}
	}
	return end
}

// check demands that each repetition was scheduled once.
func (s *seen) check(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, uids := range s.uids {
		require.Len(t, uids, 1, id)
	}
	require.Len(t, s.uids, messages*limit)
	slices.Sort(s.lateness)
	t.Logf("%d deliveries again, late by %s at the median, %s at p99", len(s.lateness), s.lateness[len(s.lateness)/2], s.lateness[len(s.lateness)*99/100])
}
