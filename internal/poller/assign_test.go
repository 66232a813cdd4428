package poller

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// shards is a store of several shards.
type shards []*fakeStore

func (s shards) shard(number int) Store { return s[number] }

// shard is the store itself, whatever the number.
func (f *fakeStore) shard(int) Store { return f }

// on lets a poller of the name poll the shards of the store.
func on(store interface{ shard(number int) Store }, name string, polled ...int) func(*Config, *bench) {
	return func(c *Config, _ *bench) { c.Store, c.Instance, c.Shards = store.shard, name, polled }
}

// hang makes a sink that takes messages and answers when the channel is closed.
func (f *fakeSink) hang() (release chan struct{}) {
	release = make(chan struct{})
	f.set(func(_ context.Context, batch []message.Message) []outcome {
		<-release
		return all(batch, acked)
	})
	return release
}

func TestAssignDoesNotWaitForALeavingShard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := shards{newFakeStore(), newFakeStore(), newFakeStore()}
		b := setup(t, on(store, "me", 0, 1))
		b.pass(time.Second)
		release := b.sink.hang()
		store[0].add(due("stuck", store[0].now()))
		b.Wake(0)
		b.pass(time.Second)
		b.sink.set(nil)
		began := time.Now()
		require.NoError(t, b.Assign([]int{2}, 3))
		require.NoError(t, b.Assign([]int{2, 0}, 3))
		require.NoError(t, b.Assign([]int{2}, 3))
		require.NoError(t, b.Assign([]int{2, 0}, 3))
		assert.Zero(t, time.Since(began))
		assert.Equal(t, []int{2}, b.Shards())
		store[2].add(due("new", store[2].now()))
		b.pass(0)
		assert.Equal(t, []string{"new"}, store[2].acked, "begun at once")
		assert.Equal(t, 1, store[1].handOvers, "not held up by the other")
		assert.Zero(t, store[0].handOvers)

		b.pass(6 * time.Second)
		assert.Equal(t, "me", store[0].holder)
		assert.True(t, store[0].until.After(time.Now()), "held while it drains")
		close(release)
		b.pass(0)
		assert.Equal(t, []string{"stuck"}, store[0].acked)
		assert.Equal(t, 1, store[0].handOvers)
		assert.Equal(t, []int{0, 2}, b.Shards(), "begun again")
		store[0].add(due("more", store[0].now()))
		b.Wake(0)
		b.pass(time.Millisecond)
		assert.Equal(t, []string{"stuck", "more"}, store[0].acked)
	})
}

func TestShardThatNeverDrainsLosesItsLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := newFakeStore()
		b := setup(t, on(store, "me", 0))
		release := b.sink.hang()
		store.add(due("m", store.now()))
		b.Wake(0)
		b.pass(time.Second)
		require.NoError(t, b.Assign(nil, 1))
		other := setup(t, on(store, "other", 0))
		other.pass(13*time.Second + 6*time.Second)
		assert.Equal(t, "other", store.holder)
		assert.Equal(t, []string{"m"}, store.acked)
		assert.Equal(t, 1, strings.Count(b.logs.String(), "not handed over in time"))
		close(release)
		b.pass(0)
		assert.Equal(t, []string{"m"}, store.acked)
		require.NoError(t, b.stop(t, time.Second))
	})
}

func TestHandOverIsFollowedAtOnce(t *testing.T) {
	for name, hinted := range map[string]bool{"hint": true, "hint lost": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				store := newFakeStore()
				old := setup(t, on(store, "old", 0))
				old.pass(time.Second)
				next := setup(t, on(store, "next", 0))
				next.pass(90 * time.Millisecond)
				assert.Equal(t, "old", store.holder)
				require.NoError(t, old.Assign(nil, 1))
				old.pass(0)
				limit := 120 * time.Millisecond
				if hinted {
					limit = leastHeld
					next.Wake(0)
				}
				next.pass(limit)
				assert.Equal(t, "next", store.holder)
			})
		})
	}
}

func TestHintsOfAHeldShardAreFollowedInMeasure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			b.store.holder, b.store.until = "other", b.store.now().Add(time.Hour)
		})
		for range 1000 {
			b.Wake(0)
			b.pass(time.Millisecond)
		}
		assert.InDelta(t, 100, len(b.store.requests), 10)
	})
}

// TestOutlivedLease is an instance that was frozen with claims in its hands: it
// publishes and settles nothing of what another one holds by now.
func TestOutlivedLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := newFakeStore()
		var frozen atomic.Bool
		freeze := func() error {
			if frozen.Load() {
				wait.Sleep(t.Context(), 7*time.Second)
			}
			return nil
		}
		old := setup(t, on(store, "old", 0), func(c *Config, _ *bench) {
			c.Claims.Batch, c.Store = 1, func(int) Store { return slowStore{store, freeze} }
		})
		old.pass(time.Second)
		frozen.Store(true)
		store.add(many(3, store.now())...)
		old.Wake(0)
		next := setup(t, on(store, "next", 0))
		next.pass(6900 * time.Millisecond)
		assert.Equal(t, "next", store.holder)
		assert.Len(t, store.acked, 3)
		frozen.Store(false)
		next.pass(time.Second)
		assert.Empty(t, old.sink.calls(), "not ours any more")
		assert.Equal(t, 1, store.stales)
		assert.Equal(t, 1, old.observer.stale)
		assert.Len(t, store.acked, 3)
		assert.Empty(t, store.claims)
	})
}

// slowStore is a store whose claims are answered late.
type slowStore struct {
	*fakeStore
	late func() error
}

func (s slowStore) Claim(ctx context.Context, r message.ClaimRequest) (message.Claim, error) {
	claim, err := s.fakeStore.Claim(ctx, r)
	_ = s.late()
	return claim, err
}

func TestQuietLooksOfAllShardsMeet(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := shards{newFakeStore(), newFakeStore()}
		b := setup(t, on(store, "me", 0))
		b.pass(300 * time.Millisecond)
		require.NoError(t, b.Assign([]int{0, 1}, 3))
		b.pass(500 * time.Millisecond)
		store[0].add(due("m", store[0].now().Add(3200*time.Millisecond))) // Due at 4 s, no quiet look.
		b.Wake(0)
		b.pass(20 * time.Second)
		start := store[0].requests[0].at
		for shard, wakes := range [][]time.Duration{{0, 800 * time.Millisecond, 4 * time.Second}, {300 * time.Millisecond}} {
			var last time.Time
			for _, r := range store[shard].requests {
				at := r.at.Sub(start)
				if r.Quiet {
					assert.Zero(t, at%(2*time.Second), "shard %d at %s", shard, at)
				} else {
					require.NotEmpty(t, wakes, "shard %d at %s", shard, at)
					assert.Equal(t, wakes[0], at)
					wakes = wakes[1:]
				}
				assert.True(t, last.IsZero() || r.at.Sub(last) <= 2*time.Second)
				last = r.at
			}
			assert.Empty(t, wakes)
		}
	})
}

func TestCommonInstants(t *testing.T) {
	t.Parallel()
	for _, phase := range []time.Duration{0, 1, 3 * time.Second, -5*time.Second - 1} {
		c, claims := &Queue{phase: phase}, Claims{MaxSleep: time.Second, Lease: time.Minute}
		for _, now := range []time.Duration{0, 1, time.Second - 1, time.Second, 7 * time.Second / 2} {
			next := c.nextCommon(now, claims.renewEvery())
			assert.Zero(t, (next+phase)%time.Second)
			assert.Greater(t, next, now)
			assert.LessOrEqual(t, next, now+time.Second)
		}
	}
}

func TestEpochsAreTold(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var told []string
		b := setup(t, func(c *Config, b *bench) {
			b.store.epoch = "1-a"
			c.Hooks.OnEpoch = func(epoch string) { told = append(told, epoch) }
		})
		b.pass(5 * time.Second)
		b.store.epoch = "2-b"
		b.pass(5 * time.Second)
		assert.Equal(t, []string{"1-a", "2-b"}, told)
	})
}
