package poller

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

func TestSameKeyWaitsAndOthersPass(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Claims.Batch = 1
			b.sink.latency = time.Second
			now := b.store.now()
			b.store.add(keyed("1", "k", now), keyed("2", "k", now), keyed("3", "other", now), due("4", now))
		})
		b.pass(500 * time.Millisecond)
		started := []string{}
		for _, call := range b.sink.calls() {
			started = append(started, call.ids...)
		}
		assert.ElementsMatch(t, []string{"1", "3", "4"}, started)
		b.pass(3 * time.Second)
		assert.Len(t, b.store.acked, 4)
		assert.Less(t, slices.Index(b.store.acked, "1"), slices.Index(b.store.acked, "2"))
	})
}

func TestLaterMessagesOfAnUnpublishedKeyAreHeldBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var failed atomic.Bool
		b := setup(t, func(c *Config, b *bench) {
			c.Claims.Batch = 2
			b.sink.behave = func(ctx context.Context, batch []message.Message) []outcome {
				wait.Sleep(ctx, time.Second)
				outcomes := all(batch, acked)
				if batch[0].ID == "1" && !failed.Swap(true) {
					outcomes[0] = sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, errBroker)
				}
				return outcomes
			}
			now := b.store.now()
			b.store.add(keyed("1", "k", now), due("2", now), keyed("3", "k", now), due("4", now), keyed("5", "k", now), due("6", now))
		})
		b.pass(10 * time.Second)
		at := map[string]int{}
		for n, call := range b.sink.calls() {
			for _, id := range call.ids {
				at[id] = n // the last time it was published
			}
		}
		assert.Len(t, b.store.acked, 6)
		assert.Less(t, slices.Index(b.store.acked, "1"), slices.Index(b.store.acked, "3"))
		assert.Less(t, slices.Index(b.store.acked, "3"), slices.Index(b.store.acked, "5"))
		assert.Less(t, at["1"], at["3"], "3 did not pass 1")
		assert.Less(t, at["2"], at["1"], "others did")
		for _, s := range b.store.settles {
			for i, v := range s.Verdicts {
				if s.Claim.Messages[i].ID != "1" {
					assert.Zero(t, v.Attempts, "held back: nothing counted")
				}
			}
		}
	})
}

func TestRefusedMessageDoesNotHoldItsKeyBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Claims.Batch = 1
			b.sink.behave = eachBy(func(id string) outcome {
				if id == "1" {
					return sinks.Failed(sinks.Retryable, sinks.ReasonRefused, errBroker)
				}
				return acked
			})
			b.store.add(keyed("1", "k", b.store.now()), keyed("2", "k", b.store.now()))
		})
		b.pass(100 * time.Millisecond)
		assert.Equal(t, []string{"2"}, b.store.acked)
	})
}

// chaos is a broker and a Redis that fail at random. What the broker stored, in
// its order, is what consumers see.
type chaos struct {
	mu     sync.Mutex
	random *rand.Rand
	stored []string
}

func (c *chaos) one() outcome {
	switch n := c.random.IntN(20); {
	case n < 2:
		return sinks.Failed(sinks.Unavailable, sinks.ReasonConnection, errBroker)
	case n < 4:
		return sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, errBroker)
	default:
		return acked
	}
}

// publish keeps the promise of a sink: of one Key, nothing is stored after
// what was not.
func (c *chaos) publish(ctx context.Context, batch []message.Message) []outcome {
	c.mu.Lock()
	pause := time.Duration(c.random.IntN(40)) * time.Millisecond
	c.mu.Unlock()
	wait.Sleep(ctx, pause)
	c.mu.Lock()
	defer c.mu.Unlock()
	broken := map[string]bool{}
	outcomes := make([]outcome, len(batch))
	for i := range batch {
		outcomes[i] = c.one()
		if broken[batch[i].Key] {
			outcomes[i] = sinks.Failed(sinks.Unavailable, sinks.ReasonConnection, errBroker)
		}
		if outcomes[i].Class == sinks.Acknowledged || outcomes[i].Class == sinks.Unknown && c.random.IntN(2) == 0 {
			c.stored = append(c.stored, batch[i].ID)
			continue
		}
		broken[batch[i].Key] = true
	}
	return outcomes
}

func (c *chaos) redis() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.random.IntN(15) == 0 {
		return errRedis
	}
	return nil
}

// TestOrderUnderChaos checks I15: the first copies of a Key are in due order.
func TestOrderUnderChaos(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { orderUnderChaos(t, seed) })
		})
	}
}

func orderUnderChaos(t *testing.T, seed uint64) {
	const messages = 200
	c := &chaos{random: rand.New(rand.NewPCG(seed, 1))}
	b := setup(t, func(config *Config, b *bench) {
		config.Claims.Batch = 1 + int(seed%7)
		config.Retry.Attempts = 1 << 20
		b.sink.behave = c.publish
		b.store.beforeClaim = func(message.ClaimRequest) error { return c.redis() }
		b.store.afterClaim = b.store.beforeClaim
		b.store.beforeSettle = func(message.Settlement) error { return c.redis() }
		b.store.afterSettle = b.store.beforeSettle
		now := b.store.now()
		for i := range messages {
			key := fmt.Sprint("k", c.random.IntN(1+int(seed%13)))
			b.store.add(keyed(fmt.Sprintf("%s/%04d", key, i), key, now.Add(time.Duration(i*5)*time.Millisecond)))
		}
	})
	b.pass(30 * time.Minute)
	require.Len(t, b.store.acked, messages)
	seen, last := map[string]bool{}, map[string]string{}
	for _, id := range c.stored {
		key, _, _ := strings.Cut(id, "/")
		if !seen[id] {
			require.Less(t, last[key], id, "first copies of %s out of order", key)
			last[key] = id
		}
		seen[id] = true
	}
	require.Len(t, seen, messages)
}
