package poller

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// TestGains tells shards that were free or handed over from those of an
// instance that fell silent, which may have left claims.
func TestGains(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := shards{newFakeStore(), newFakeStore(), newFakeStore(), newFakeStore()}
		first := setup(t, on(store, "first", 1))
		first.pass(time.Second)
		silent := func(f *fakeStore, lease time.Duration) {
			f.holder, f.until = "silent", f.now().Add(lease)
			f.claims[message.ClaimToken{Instance: "silent", Number: 7}] = &fakeClaim{
				messages: many(3, f.now()), deadline: f.now().Add(time.Minute),
			}
		}
		silent(store[2], 4*time.Second)
		silent(store[3], 0)
		b := setup(t, on(store, "me", 0, 1, 2, 3))
		b.pass(time.Second)
		assert.Equal(t, Gains{Free: []int{0}, Lapsed: []int{3}, Reclaimed: 3}, b.Gains())
		require.NoError(t, first.stop(t, time.Second))
		b.pass(time.Second)
		assert.Equal(t, Gains{Free: []int{1}}, b.Gains(), "handed over")
		b.pass(3 * time.Second)
		assert.Equal(t, Gains{Lapsed: []int{2}, Reclaimed: 3}, b.Gains())
		b.pass(time.Minute)
		assert.Equal(t, Gains{}, b.Gains(), "said once")
		assert.Zero(t, strings.Count(b.logs.String(), "reclaimed"), "no line for each shard")
	})
}
