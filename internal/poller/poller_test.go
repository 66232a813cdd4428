package poller

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

func TestNewRefusesBadConfigurations(t *testing.T) {
	t.Parallel()
	good := Config{Queue: "q", Instance: "i", Sink: Sink{Sink: &fakeSink{}}, Store: newFakeStore().shard}
	_, err := New(good)
	require.NoError(t, err)
	for name, spoil := range map[string]func(*Config){
		"queue":    func(c *Config) { c.Queue = "" },
		"instance": func(c *Config) { c.Instance = "" },
		"sink":     func(c *Config) { c.Sink.Sink = nil },
		"store":    func(c *Config) { c.Store = nil },
		"batch":    func(c *Config) { c.Claims.Batch = 1001 },
		"inflight": func(c *Config) { c.Claims.InFlight = -1 },
		"sleep":    func(c *Config) { c.Claims.MaxSleep = -1 },
	} {
		bad := good
		spoil(&bad)
		_, err := New(bad)
		assert.Error(t, err, name)
	}
}

func TestStopWithoutStart(t *testing.T) {
	t.Parallel()
	p, err := New(Config{Queue: "q", Instance: "i", Sink: Sink{Sink: &fakeSink{}}, Store: newFakeStore().shard})
	require.NoError(t, err)
	p.Wake(0)
	require.NoError(t, p.Live())
	require.Error(t, p.Assign([]int{1}, 3))
	require.NoError(t, p.Stop(t.Context()))
	require.ErrorIs(t, p.Start(t.Context()), errStopped)
	require.ErrorIs(t, p.Assign([]int{1}, 3), errStopped)
}

func TestStartAndStopFromManySides(t *testing.T) {
	t.Parallel()
	for range 30 {
		store := newFakeStore()
		p, err := New(Config{Queue: "q", Instance: "i", Shards: []int{0}, Sink: Sink{Sink: &fakeSink{}}, Store: store.shard})
		require.NoError(t, err)
		store.add(many(50, store.now())...)
		var all sync.WaitGroup
		for i := range 12 {
			all.Go(func() {
				switch i % 4 {
				case 0:
					_ = p.Start(t.Context())
				case 1:
					_ = p.Assign([]int{0, 1, 2}[:1+i/4], 3)
				case 2:
					p.Wake(0)
					_ = p.Live()
				default:
					_ = p.Stop(t.Context())
				}
			})
		}
		all.Wait()
		require.NoError(t, p.Stop(t.Context()))
		assert.Empty(t, store.claims)
		assert.Len(t, store.acked, 50-len(store.waiting))
	}
}

func TestAssignMovesShardsAndKeepsTheirNumbers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t)
		b.pass(5 * time.Second)
		require.NoError(t, b.Assign(nil, 1))
		b.pass(time.Minute)
		polled := len(b.store.requests)
		last := b.store.requests[polled-1]
		assert.Equal(t, 1, b.store.handOvers)
		assert.Greater(t, time.Since(last.at), 59*time.Second, "not polled any more")
		require.NoError(t, b.Assign([]int{0}, 3))
		require.NoError(t, b.Assign([]int{0}, 3), "nothing changes")
		b.pass(time.Second)
		next := b.store.requests[polled]
		assert.Equal(t, last.Token.Number+1, next.Token.Number)
	})
}

// A loop that always has something to claim is live.
func TestBusyLoopIsLive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Claims.Batch = 1
			b.store.beforeClaim = func(message.ClaimRequest) error {
				wait.Sleep(t.Context(), 100*time.Millisecond)
				return nil
			}
			b.store.add(many(1000, b.store.now())...)
		})
		b.pass(90 * time.Second)
		require.Less(t, len(b.store.acked), 1000)
		require.NoError(t, b.Live())
	})
}

func TestHungLoopIsNotLive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		hang := make(chan struct{})
		b := setup(t, func(_ *Config, b *bench) {
			b.store.beforeClaim = func(message.ClaimRequest) error {
				<-hang
				return nil
			}
		})
		b.pass(20 * time.Second)
		require.NoError(t, b.Live())
		b.pass(2 * time.Second)
		require.ErrorContains(t, b.Live(), "shard 0")
		close(hang)
		b.pass(time.Millisecond)
		require.NoError(t, b.Live())
		_, look := b.longestAgo()
		assert.WithinDuration(t, time.Now(), look, time.Second)
	})
}

// BenchmarkDrain measures the poller alone: no Redis, no broker.
func BenchmarkDrain(b *testing.B) {
	for name, key := range map[string]string{"plain": "", "keyed": "k"} {
		b.Run(name, func(b *testing.B) { benchmarkDrain(b, key) })
	}
}

func benchmarkDrain(b *testing.B, key string) {
	const batch = 500
	store := &endlessStore{stop: make(chan struct{}), left: b.N / batch}
	for i := range batch {
		store.messages = append(store.messages, keyed("m", key, time.Now()))
		if key != "" {
			store.messages[i].Key += string(rune('a' + i))
		}
	}
	sink := &willingSink{}
	p, err := New(Config{Queue: "q", Instance: "i", Shards: []int{0}, Sink: Sink{Sink: sink}, Store: func(int) Store { return store }})
	require.NoError(b, err)
	b.ReportAllocs()
	b.ResetTimer()
	require.NoError(b, p.Start(b.Context()))
	<-store.stop
	require.NoError(b, p.Stop(b.Context()))
}

// willingSink is a sink that acknowledges everything.
type willingSink struct {
	sinks.Sink
}

func (w *willingSink) Route(m *message.Message) sinks.Route { return sinks.Route(m.Topic) }

func (w *willingSink) Publish(_ context.Context, _ []message.Message, outcomes *sinks.Outcomes) {
	outcomes.Rest(acked)
}

// endlessStore is a store that always has a full batch, as often as left says.
type endlessStore struct {
	messages []message.ClaimedMessage
	left     int
	stop     chan struct{}
}

func (e *endlessStore) Claim(_ context.Context, r message.ClaimRequest) (message.Claim, error) {
	if r.Max == 0 {
		return message.Claim{Now: time.Now(), NextDue: time.Now()}, nil
	}
	if e.left--; e.left == -1 {
		close(e.stop)
	}
	if e.left < 0 {
		return message.Claim{Now: time.Now()}, nil
	}
	return message.Claim{Now: time.Now(), NextDue: time.Now(), Messages: e.messages, More: true}, nil
}

func (e *endlessStore) Confirm(context.Context, message.ClaimToken) error { return nil }

func (e *endlessStore) Settle(context.Context, message.Settlement) (bool, error) { return false, nil }

func (e *endlessStore) Reclaim(context.Context, message.Reclaim) (int, bool, error) {
	return 0, false, nil
}

func (e *endlessStore) Parked(context.Context) ([]message.ParkedRoute, error) { return nil, nil }

func (e *endlessStore) HandOver(context.Context, string) error { return nil }
