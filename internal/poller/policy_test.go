package poller

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// TestChange gives a queue another policy while it is polled, and a rate of a topic has
// parked some of its messages.
func TestChange(t *testing.T) {
	bubble(t, func(t *testing.T) {
		key := func(i int) string { return fmt.Sprint("k", i%5) }
		b := setup(t, func(c *Config, b *bench) {
			c.Rates = Rates{Messages: 20, Topics: map[string]int{"slow": 5}}
			b.sink.behave = byTopic(map[string]outcome{"missing": missing})
			b.store.add(to("slow", 200, b.store.now(), key)...)
			b.store.add(to("t", 1000, b.store.now(), key)...)
			b.store.add(to("missing", 3, b.store.now(), noKey)...)
		})
		b.pass(10 * time.Second)
		assert.LessOrEqual(t, len(b.store.acked), 10*20+20)
		assert.LessOrEqual(t, len(b.ackedOf("slow")), 10*5+5)
		b.Change(Policy{Rates: Rates{Topics: map[string]int{"t": 500}}})
		b.pass(10 * time.Second)
		assert.Len(t, b.ackedOf("slow"), 200)
		assert.Len(t, b.ackedOf("t"), 1000)
		assertKeyOrder(t, b.sink.calls(), 5)

		assert.Empty(t, b.store.dead)
		b.Change(Policy{ParkPatience: time.Minute, Late: message.Late{After: time.Hour, Then: message.LateDrop}})
		b.store.add(due("late", b.store.now().Add(-2*time.Hour)))
		b.Wake(0)
		b.pass(10 * time.Minute)
		assert.Equal(t, []string{"late"}, b.store.dropped)
		assert.Len(t, b.store.dead, 3)
	})
}
