package poller

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

var errUnconfirmed = errors.New("0 of 1 replicas did")

// TestClaimsAreNotConfirmedUnlessAsked costs nothing.
func TestClaimsAreNotConfirmedUnlessAsked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			b.store.confirm = func(message.ClaimToken) error { return errUnconfirmed }
			b.store.add(many(10, b.store.now())...)
		})
		b.pass(0)
		assert.Len(t, b.store.acked, 10)
	})
}

// TestUnconfirmedIsNotPublished: what a claim took goes back and waits, at little
// cost, and is published in due order once claims are confirmed.
func TestUnconfirmedIsNotPublished(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const outage = time.Minute
		var down atomic.Bool
		down.Store(true)
		b := setup(t, func(c *Config, b *bench) {
			c.Claims.Durable = true
			b.store.confirm = func(message.ClaimToken) error {
				if down.Load() {
					return errUnconfirmed
				}
				return nil
			}
			for i := range 700 {
				b.store.add(keyed(fmt.Sprintf("m%03d", i), "key", b.store.now()))
			}
		})
		for range outage / time.Second {
			b.Wake(0) // A busy producer's hints make it try no sooner.
			b.pass(time.Second)
		}
		assert.Empty(t, b.sink.calls())
		assert.Zero(t, b.observer.inFlight.Load(), "nothing is held")
		takes := b.store.takes()
		assert.Less(t, len(takes), int(outage/unconfirmedLimit)+10)
		for _, r := range takes[4:] {
			assert.Equal(t, 1, r.taken, "one message finds out")
		}
		require.NoError(t, b.Live())
		b.store.read(func() {
			assert.Len(t, b.store.waiting, 700)
			for _, m := range b.store.waiting {
				assert.Zero(t, m.Attempts, "no attempt is counted, nothing is marked")
			}
		})

		down.Store(false)
		b.pass(unconfirmedLimit + time.Second)
		assert.Len(t, b.store.acked, 700)
		assert.IsIncreasing(t, b.sink.ids())
		assert.Len(t, b.sink.ids(), 700, "each once")
		assert.Zero(t, b.store.stales)

		down.Store(true)
		b.store.add(due("next", b.store.now()))
		b.Wake(0)
		b.pass(time.Millisecond)
		down.Store(false)
		b.pass(unconfirmedLimit / 2)
		assert.Len(t, b.store.acked, 701, "the pause is short again")
	})
}

// TestSlowConfirmation: a shard holds its lease, keeps few confirmations under way,
// and keeps the order of a Key though later claims are confirmed first.
func TestSlowConfirmation(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var under, most, asked atomic.Int64
		b := setup(t, func(c *Config, b *bench) {
			c.Claims.Durable, c.Claims.Batch = true, 10
			b.store.confirm = func(message.ClaimToken) error {
				n := under.Add(1)
				most.Store(max(most.Load(), n))
				defer under.Add(-1)
				time.Sleep(3*time.Second - time.Duration(asked.Add(1)%4)*time.Second/2) //nolint:forbidigo // The bubble's clock.
				return nil
			}
			for i := range 200 {
				b.store.add(keyed(fmt.Sprintf("m%03d", i), fmt.Sprint(i%3), b.store.now()))
			}
		})
		b.pass(time.Minute)
		assert.Len(t, b.store.acked, 200)
		assert.EqualValues(t, defaultInFlight, most.Load())
		last := map[int]string{}
		for _, id := range b.sink.ids() {
			var n int
			_, err := fmt.Sscanf(id, "m%d", &n)
			require.NoError(t, err)
			assert.Greater(t, id, last[n%3])
			last[n%3] = id
		}
		b.store.read(func() {
			for i := 1; i < len(b.store.requests); i++ {
				assert.LessOrEqual(t, b.store.requests[i].at.Sub(b.store.requests[i-1].at), 2*time.Second, "the lease is renewed")
			}
		})
	})
}

// TestConfirmationsAreBounded: however few messages each claim takes, few wait at
// once, and the next claim leaves when one has been confirmed, whatever the sink does.
func TestConfirmationsAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const confirming = 500 * time.Millisecond
		var under, most atomic.Int64
		b := setup(t, func(c *Config, b *bench) {
			c.Claims.Durable = true
			b.sink.latency = time.Minute / 8
			b.store.confirm = func(message.ClaimToken) error {
				n := under.Add(1)
				most.Store(max(most.Load(), n))
				defer under.Add(-1)
				time.Sleep(confirming) //nolint:forbidigo // The bubble's clock.
				return nil
			}
			for i := range 100 {
				b.store.add(due(fmt.Sprintf("m%03d", i), b.store.now().Add(time.Duration(i)*50*time.Millisecond)))
			}
		})
		b.pass(100*50*time.Millisecond + 2*confirming)
		assert.Len(t, b.sink.ids(), 100)
		assert.EqualValues(t, defaultInFlight, most.Load())
	})
}

// TestDrainWhileUnconfirmed gives back what is being confirmed.
func TestDrainWhileUnconfirmed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Claims.Durable = true
			b.store.confirm = func(message.ClaimToken) error {
				time.Sleep(time.Second) //nolint:forbidigo // The bubble's clock.
				return nil
			}
			b.store.add(many(10, b.store.now())...)
		})
		b.pass(500 * time.Millisecond)
		require.NoError(t, b.stop(t, 10*time.Second))
		assert.Empty(t, b.sink.calls(), "no publish begins in a drain")
		assert.Len(t, b.store.waiting, 10)
		assert.Empty(t, b.store.claims)
		assert.Equal(t, 1, b.store.handOvers)
	})
}

// ids are those that were published, in order.
func (f *fakeSink) ids() (ids []string) {
	for _, p := range f.calls() {
		ids = append(ids, p.ids...)
	}
	return ids
}
