package poller

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// Two mechanisms at once: each holds alone, and the pair must.

// silentTopic answers "unknown" after a publish timeout for messages of the topic, and by
// the other function at once for the rest.
func silentTopic(topic string, others func(batch []message.Message) []outcome) func(context.Context, []message.Message, *sinks.Outcomes) {
	return func(ctx context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
		answers := others(batch)
		var hung []int
		for i := range batch {
			if batch[i].Topic == topic {
				hung = append(hung, i)
			} else {
				outcomes.Report(i, answers[i])
			}
		}
		if len(hung) > 0 {
			wait.Sleep(ctx, 10*time.Second)
		}
		for _, i := range hung {
			outcomes.Report(i, sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, errBroker))
		}
	}
}

// partSink reports each outcome when it is known.
type partSink struct {
	*fakeSink
	each func(context.Context, []message.Message, *sinks.Outcomes)
}

func (p partSink) Publish(ctx context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	p.note(batch)
	p.each(ctx, batch, outcomes)
}

// breaker ends a loop that turns without end, in which a bubble's time would stand still.
func breaker(b *bench) {
	b.store.beforeClaim = func(message.ClaimRequest) error {
		b.store.mu.Lock()
		defer b.store.mu.Unlock()
		if len(b.store.requests) > 20_000 {
			return errRedis
		}
		return nil
	}
}

func hanging(id string, at time.Time) message.ClaimedMessage {
	m := due(id, at)
	m.Topic = "hangs"
	return m
}

// TestOrderBesideAHang has a message of a Key go back once, while its claim holds
// another that hangs: the Key goes on at once, and nothing turns for its sake.
// It checks I8 and I9.
func TestOrderBesideAHang(t *testing.T) {
	for name, blip := range map[string]outcome{
		"full":    full,
		"unknown": sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, errBroker),
		"whole":   sinks.FailedWhole(sinks.Unavailable, sinks.ReasonConnection, errBroker),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var blipped atomic.Bool
				b := setup(t, func(c *Config, b *bench) {
					breaker(b)
					breaker(b)
					c.Sink.Sink = partSink{b.sink, silentTopic("hangs", func(batch []message.Message) []outcome {
						list := all(batch, acked)
						if i := slices.IndexFunc(batch, func(m message.Message) bool { return m.Key == "k" }); i >= 0 && !blipped.Swap(true) {
							list[i] = blip
						}
						return list
					})}
					now := b.store.now()
					b.store.add(hanging("h", now), keyed("1", "k", now), keyed("2", "k", now.Add(time.Millisecond)))
				})
				b.pass(3 * time.Second)
				assert.ElementsMatch(t, []string{"1", "2"}, b.store.acked, "the hanging one has another three seconds and more to go")
				assert.Less(t, b.sink.last("1"), b.sink.last("2"))
				assert.Less(t, len(b.store.requests), 100)
				assert.Less(t, len(b.store.settles), 100)
				b.pass(30 * time.Second)
				assert.Less(t, len(b.store.requests), 200)
			})
		})
	}
}

// TestOrderAndRateBesideAHang has a topic's rate send messages of a Key to wait, while
// their claims hold one that hangs.
func TestOrderAndRateBesideAHang(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			breaker(b)
			c.Rates.Topics = map[string]int{"t": 10}
			c.Sink.Sink = partSink{b.sink, silentTopic("hangs", func(batch []message.Message) []outcome { return all(batch, acked) })}
			now := b.store.now()
			b.store.add(hanging("h", now))
			for i := range 30 {
				b.store.add(keyed(fmt.Sprintf("%03d", i), "k", now))
			}
		})
		b.pass(5 * time.Second)
		assert.Len(t, b.store.acked, 30, "10/s, after a burst of none")
		var published []string
		for _, call := range b.sink.calls() {
			published = append(published, slices.DeleteFunc(call.ids, func(id string) bool { return id == "h" })...)
		}
		assert.True(t, slices.IsSorted(published))
		assert.Less(t, len(b.store.requests), 300)
	})
}

// TestManyHangingRoutes has 100 topics hang at once, again and again: those that are
// well are not late for it. It checks I8 and I9.
func TestManyHangingRoutes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			breaker(b)
			c.Sink.Sink = partSink{b.sink, func(ctx context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
				left := 0
				for i := range batch {
					if batch[i].Topic == "t" {
						outcomes.Report(i, acked)
					} else {
						left++
					}
				}
				if left > 0 {
					wait.Sleep(ctx, 10*time.Second)
				}
				for i := range batch {
					if batch[i].Topic != "t" {
						outcomes.Report(i, sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, errBroker))
					}
				}
			}}
			now := b.store.now()
			for i := range 100 { // Each in a claim of its own.
				for n := range 5 {
					m := hanging(fmt.Sprintf("h%d-%d", i, n), now.Add(time.Duration(20*i)*time.Millisecond))
					m.Topic = fmt.Sprint("hangs", i)
					b.store.add(m)
				}
			}
		})
		for i := range 3000 {
			b.store.add(due(fmt.Sprint("x", i), b.store.now().Add(20*time.Millisecond)))
			b.Wake(0)
			b.pass(20 * time.Millisecond)
		}
		b.pass(100 * time.Millisecond)
		assert.Len(t, b.store.acked, 3000)
		b.observer.read(func() {
			assert.LessOrEqual(t, slices.Max(b.observer.latenesses), 50*time.Millisecond)
		})
		assert.LessOrEqual(t, b.observer.inFlightMost.Load(), int64(2000))
	})
}

// TestReleaseAndAClockSetBack has messages go back to wait, Redis' clock set back an
// hour, and a route healed: what is parked of it does not wait for that hour.
func TestReleaseAndAClockSetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var isDown atomic.Bool
		isDown.Store(true)
		b := setup(t, func(c *Config, b *bench) {
			breaker(b)
			b.store.skew = time.Hour
			b.sink.behave = func(_ context.Context, batch []message.Message) []outcome {
				list := all(batch, acked)
				for i := range batch {
					switch {
					case batch[i].Topic == "dead" && isDown.Load():
						list[i] = full
					case batch[i].ID == "back" && isDown.Load():
						list[i] = sinks.FailedWhole(sinks.Unavailable, sinks.ReasonConnection, errBroker)
					}
				}
				return list
			}
			b.store.add(to("dead", 20, b.store.now().Add(-2*time.Hour), noKey)...)
		})
		b.pass(time.Second)
		require.Len(t, b.store.parked(), 20)
		b.store.add(due("back", b.store.now()))
		b.Wake(0)
		b.pass(10 * time.Millisecond)
		b.store.read(func() { b.store.skew = 0 })
		isDown.Store(false)
		b.pass(time.Minute)
		assert.Len(t, b.store.acked, 20, "all but the one whose due time is to come again")
		b.pass(time.Hour)
		assert.Len(t, b.store.acked, 21)
	})
}
