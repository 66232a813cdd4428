package poller

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// TestLateMessagesAreDropped in bulk after an outage, Keys and slots among them, and what
// is in time is published.
func TestLateMessagesAreDropped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Late = message.Late{After: time.Hour, Then: message.LateDrop}
			b.store.add(to("late", 3000, b.store.now().Add(-2*time.Hour), func(i int) string { return []string{"", "k", "l"}[i%3] })...)
			b.store.add(to("fresh", 1000, b.store.now().Add(-30*time.Minute), noKey)...)
		})
		b.pass(10 * time.Second)
		assert.Len(t, b.store.dropped, 3000)
		assert.Len(t, b.ackedOf("fresh"), 1000)
		lines := strings.Count(b.logs.String(), "messages dropped")
		assert.True(t, 1 <= lines && lines <= 20, "a line a settlement, there are %d", lines)
		assert.Zero(t, strings.Count(b.logs.String(), "panic"))
		assert.Zero(t, b.observer.inFlight.Load())
		messages, bytes := b.queue.config.Sink.Window.InFlight()
		assert.Zero(t, messages)
		assert.Zero(t, bytes)
	})
}

// TestLateMessagesOfADeadRoute leave its slot quickly, for the dead letters, while it is
// dead and when it is back.
func TestLateMessagesOfADeadRoute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Late = message.Late{After: time.Hour, Then: message.LateDead}
			b.sink.behave = byTopic(map[string]outcome{"dead": full})
			b.store.add(to("dead", 2000, b.store.now(), noKey)...)
		})
		b.pass(30 * time.Minute)
		require.Len(t, b.store.parked(), 2000)
		b.store.add(to("dead", 2100, b.store.now(), noKey)[2000:]...)
		b.Wake(0)
		b.pass(31 * time.Minute)
		require.Len(t, b.store.dead, 2000)
		require.Len(t, b.store.parked(), 100)
		b.sink.set(same(acked))
		b.pass(5 * time.Second)
		require.Len(t, b.store.acked, 100)
		require.Empty(t, b.store.parked())
	})
}

// TestOwnLateness: what a message says goes before what its queue says.
func TestOwnLateness(t *testing.T) {
	for name, queues := range map[string]message.Late{"none": {}, "dead": {After: time.Hour, Then: message.LateDead}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := setup(t, func(c *Config, b *bench) {
					c.Late = queues
					for id, late := range map[string]string{"drop": "drop 1h0m0s", "soon": "drop 3h0m0s", "publish": "publish 0s", "queues": ""} {
						m := due(id, b.store.now().Add(-2*time.Hour))
						if late != "" {
							m.Headers = map[string]string{message.HeaderLate: late}
						}
						b.store.add(m)
					}
				})
				b.pass(time.Second)
				assert.Equal(t, []string{"drop"}, b.store.dropped)
				published := []string{"publish", "soon"}
				if queues == (message.Late{}) {
					published = append(published, "queues")
				}
				assert.ElementsMatch(t, published, b.store.acked)
				assert.Equal(t, queues != (message.Late{}), len(b.store.dead) == 1)
			})
		})
	}
}
