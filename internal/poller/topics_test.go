package poller

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// rules are what is known of the topics, and what Redis says of them.
type rules struct {
	known, now message.Topics
	isAway     atomic.Bool
}

func (r *rules) Known() message.Topics { return r.known }

func (r *rules) Ask(context.Context) (message.Topics, error) {
	if r.isAway.Load() {
		return nil, errors.New("away")
	}
	return r.now, nil
}

// TestTopicsThatAreNotTaken go to the dead letters, with a reason, and no other: neither
// those that were added a moment ago, nor any while Redis cannot be asked.
func TestTopicsThatAreNotTaken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		limits := &rules{known: message.Topics{"orders.*"}, now: message.Topics{"orders.*", "new"}}
		limits.isAway.Store(true)
		b := setup(t, func(c *Config, b *bench) {
			c.Topics = limits
			b.store.add(to("orders.eu", 100, b.store.now(), noKey)...)
			b.store.add(to("new", 100, b.store.now(), noKey)...)
			b.store.add(to("old", 100, b.store.now(), noKey)...)
		})
		b.pass(10 * time.Second)
		assert.Len(t, b.store.acked, 100)
		assert.Len(t, b.ackedOf("orders.eu"), 100)
		assert.Empty(t, b.store.dead)
		limits.isAway.Store(false)
		b.pass(10 * time.Second)
		assert.Len(t, b.ackedOf("new"), 100)
		require.Len(t, b.store.dead, 100)
		assert.Empty(t, b.ackedOf("old"))
	})
}

// TestOrderWhereTopicsAreNotKnown: messages of a topic that was added a moment ago wait while Redis cannot be asked whether it is
// one of the queue's, in due order, and later ones of their Keys behind them (I15).
func TestOrderWhereTopicsAreNotKnown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		limits := &rules{known: message.Topics{"orders.*"}, now: message.Topics{"orders.*", "new"}}
		limits.isAway.Store(true)
		var want []string
		b := setup(t, func(c *Config, b *bench) {
			c.Topics, c.Claims.Batch = limits, 2
			for i := range 5 {
				m := keyed(fmt.Sprint(9-i), "k", b.store.now().Add(time.Duration(i-9)*time.Millisecond))
				m.Topic, want = "new", append(want, m.ID)
				b.store.add(m)
			}
		})
		b.pass(500 * time.Millisecond)
		limits.isAway.Store(false)
		b.pass(10 * time.Second)
		var published []string
		for _, call := range b.sink.calls() {
			published = append(published, call.ids...)
		}
		assert.Equal(t, want, published)
	})
}
