package poller

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// seals opens what begins with the name of a key that it has.
type seals struct {
	mu   sync.Mutex
	keys []string
}

func (s *seals) add(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = append(s.keys, key)
}

func (s *seals) open(m *message.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, isSealed := m.SealedBy()
	body, isWhole := bytes.CutPrefix(m.Body, []byte(id+" "))
	switch {
	case !isSealed:
		return nil
	case !slices.Contains(s.keys, id):
		return message.UnknownKey(id)
	case !isWhole:
		return message.BrokenSeal(id)
	}
	m.Headers, m.Body = map[string]string{}, body
	return nil
}

// sealedWith makes the bodies those that the key opens.
func sealedWith(key string, messages []message.ClaimedMessage) []message.ClaimedMessage {
	for i := range messages {
		messages[i].Headers = map[string]string{message.HeaderSealed: key}
		messages[i].Body = []byte(key + " " + messages[i].ID)
	}
	return messages
}

func broken(messages []message.ClaimedMessage) []message.ClaimedMessage {
	for i := range messages {
		messages[i].Body = []byte("forged")
	}
	return messages
}

// clearOnly answers as behave does, and fails the test where the sink gets a sealed body.
func clearOnly(t *testing.T, behave func(context.Context, []message.Message) []outcome) func(context.Context, []message.Message) []outcome {
	t.Helper()
	return func(ctx context.Context, batch []message.Message) []outcome {
		for i := range batch {
			_, isSealed := batch[i].SealedBy()
			assert.False(t, isSealed, batch[i].ID)
			if len(batch[i].Body) > 0 {
				assert.Equal(t, batch[i].ID, string(batch[i].Body))
			}
		}
		return behave(ctx, batch)
	}
}

func atOnce(ids []string) func(i int) string { return func(i int) string { return ids[i%len(ids)] } }

// TestSealedBodies mixes clear messages with sealed ones, some of which do not open: these
// keep no others of their topic, and are not lost. When their key comes, they are published.
func TestSealedBodies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		keys := &seals{keys: []string{"k1"}}
		b := setup(t, func(c *Config, b *bench) {
			c.Sink.Open = keys.open
			b.sink.behave = clearOnly(t, same(acked))
			now := b.store.now()
			b.store.add(sealedWith("k7", to("later", 1000, now, noKey))...)
			b.store.add(sealedWith("k1", to("sealed", 300, now, atOnce([]string{"a", "b"})))...)
			b.store.add(to("clear", 300, now, noKey)...)
			b.store.add(broken(sealedWith("k1", to("forged", 5, now, noKey)))...)
			for i := range b.store.waiting { // All of one topic.
				b.store.waiting[i].Topic = "t"
			}
		})
		b.pass(10 * time.Second)
		assert.Len(t, b.ackedOf("sealed"), 300)
		assert.Len(t, b.ackedOf("clear"), 300)
		assert.Len(t, b.store.parked(), 1000)
		require.Len(t, b.store.dead, 5)
		assert.Equal(t, `permanent broken_seal: sealed: broken seal of key "k1"`, b.store.dead["forged/00000"].Reason)
		assert.Equal(t, "key k7", b.store.routes[1].Route)
		assert.Equal(t, string(sinks.ReasonUnknownKey), b.store.routes[1].Reason)
		assert.Equal(t, 1, strings.Count(b.logs.String(), "route unavailable"))
		b.observer.read(func() { assert.Equal(t, 5, b.observer.failures["permanent broken_seal"]) })

		keys.add("k7")
		b.pass(6 * time.Second)
		assert.Len(t, b.ackedOf("later"), 1000)
		assert.Empty(t, b.store.parked())
		assert.Len(t, b.store.dead, 5)
	})
}

// TestUnknownKeyForLong goes to the dead letters after the queue's patience, and not before.
func TestUnknownKeyForLong(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) { // It has no keys at all.
			c.ParkPatience = time.Hour
			b.sink.behave = clearOnly(t, same(acked))
			b.store.add(sealedWith("k7", to("t", 700, b.store.now(), noKey))...)
		})
		b.pass(59 * time.Minute)
		assert.Empty(t, b.store.dead)
		assert.Len(t, b.store.parked(), 700)
		b.pass(2 * time.Minute)
		require.Len(t, b.store.dead, 700)
		assert.Contains(t, b.store.dead["t/00000"].Reason, `unavailable for 1h0m`)
		assert.Contains(t, b.store.dead["t/00000"].Reason, `sealed: unknown key "k7"`)
		assert.Empty(t, b.sink.calls())
	})
}

// TestBrokenSealsBehindAnUnknownKey are passed over in growing steps when it comes.
func TestBrokenSealsBehindAnUnknownKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		keys := &seals{}
		b := setup(t, func(c *Config, b *bench) {
			c.Sink.Open = keys.open
			b.sink.behave = clearOnly(t, same(acked))
			now := b.store.now()
			b.store.add(broken(sealedWith("k7", to("forged", 3000, now, noKey)))...)
			b.store.add(sealedWith("k7", to("good", 10, now.Add(10*time.Second), noKey))...)
		})
		b.pass(time.Minute)
		require.Len(t, b.store.parked(), 3010)
		keys.add("k7")
		claims := len(b.store.takes())
		b.pass(10 * time.Second)
		assert.Less(t, len(b.store.takes())-claims, 100)
		assert.Len(t, b.store.dead, 3000)
		assert.Len(t, b.ackedOf("good"), 10)
	})
}

// TestUnknownKeyOnADeadRoute: what waits for its topic, and would not open, goes out of the
// way of what waits behind it as soon as the topic is tried.
func TestUnknownKeyOnADeadRoute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			b.sink.behave = clearOnly(t, byTopic(map[string]outcome{"t": full}))
			b.store.add(to("clear", 1, b.store.now(), noKey)...)
			b.store.waiting[0].Topic = "t"
		})
		b.pass(10 * time.Second) // The topic is down.
		later := append(sealedWith("k7", to("sealed", 500, b.store.now(), noKey)), to("clear2", 500, b.store.now().Add(time.Second), noKey)...)
		for i := range later {
			later[i].Topic = "t"
		}
		b.store.add(later...)
		b.Wake(0)
		b.pass(time.Minute)
		assert.Len(t, b.store.parked(), 1001)
		b.sink.set(clearOnly(t, same(acked)))
		b.pass(30 * time.Second)
		assert.Len(t, b.ackedOf("clear"), 1)
		assert.Len(t, b.ackedOf("clear2"), 500)
		assert.Len(t, b.store.parked(), 500)
	})
}

// TestUnknownKeyAndAPausedTopic: when the key comes, what waited for it is judged one by one:
// a paused topic stays paused, and keeps no other; a topic's rate holds.
func TestUnknownKeyAndAPausedTopic(t *testing.T) {
	bubble(t, func(t *testing.T) {
		keys := &seals{}
		b := setup(t, func(c *Config, b *bench) {
			c.Sink.Open, c.Rates = keys.open, Rates{Topics: map[string]int{"slow": 50}}
			b.sink.behave = clearOnly(t, same(acked))
			now := b.store.now()
			b.store.add(sealedWith("k7", to("held", 1000, now.Add(-time.Minute), noKey))...)
			for i, topic := range []string{"runs", "slow"} {
				b.store.add(sealedWith("k7", to(topic, 1000, now.Add(time.Duration(i)), noKey))...)
			}
		})
		b.pass(time.Minute)
		require.Len(t, b.store.parked(), 3000)
		b.Pause(b.paused("held"))
		claims := len(b.store.takes())
		b.pass(time.Minute)
		assert.Empty(t, b.sink.calls())
		assert.Less(t, len(b.store.takes())-claims, 100, "it is not claimed over and over")
		keys.add("k7")
		b.pass(10 * time.Second)
		assert.Empty(t, b.ackedOf("held"))
		assert.Len(t, b.ackedOf("runs"), 1000)
		slow := len(b.ackedOf("slow"))
		assert.Positive(t, slow)
		assert.LessOrEqual(t, slow, 600, "50 a second, and what one saves up")

		b.Pause(b.paused())
		b.pass(30 * time.Second)
		assert.Len(t, b.ackedOf("held"), 1000)
		assert.Len(t, b.ackedOf("slow"), 1000)
		assert.Empty(t, b.store.parked())
		assert.Empty(t, b.store.dead)
	})
}

// TestPauseWhileAKeyIsAskedFor: a topic that is paused while one of its messages is tried
// does not pause those of other topics that wait for the same key.
func TestPauseWhileAKeyIsAskedFor(t *testing.T) {
	bubble(t, func(t *testing.T) {
		keys := &seals{}
		b := setup(t, func(c *Config, b *bench) {
			c.Sink.Open = func(m *message.Message) error {
				b.Pause(b.paused("held"))
				time.Sleep(time.Millisecond) //nolint:forbidigo // The bubble's clock: the loop has heard of it then.
				return keys.open(m)
			}
			b.sink.behave = clearOnly(t, same(acked))
			b.store.add(sealedWith("k7", to("held", 1, b.store.now(), noKey))...)
		})
		b.pass(time.Second)
		b.store.add(sealedWith("k7", to("runs", 100, b.store.now(), noKey))...)
		b.Wake(0)
		b.pass(time.Second)
		keys.add("k7")
		b.pass(10 * time.Second)
		assert.Len(t, b.ackedOf("runs"), 100)
		assert.Empty(t, b.ackedOf("held"))
	})
}
