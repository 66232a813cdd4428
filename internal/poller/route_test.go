package poller

import (
	"context"
	"errors"
	"fmt"
	"maps"
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

var (
	full    = sinks.Failed(sinks.Unavailable, sinks.ReasonFull, errBroker)
	missing = sinks.Failed(sinks.Unavailable, sinks.ReasonTopicMissing, errBroker)
)

// byTopic answers for each message by its topic; others are acknowledged.
func byTopic(outcomes map[string]outcome) func(context.Context, []message.Message) []outcome {
	return func(_ context.Context, batch []message.Message) []outcome {
		list := all(batch, acked)
		for i := range batch {
			if o, ok := outcomes[batch[i].Topic]; ok {
				list[i] = o
			}
		}
		return list
	}
}

// to are n messages of a topic, due one after the other from at.
func to(topic string, n int, at time.Time, key func(i int) string) []message.ClaimedMessage {
	messages := make([]message.ClaimedMessage, n)
	for i := range messages {
		messages[i] = keyed(fmt.Sprintf("%s/%05d", topic, i), key(i), at.Add(time.Duration(i)*time.Millisecond))
		messages[i].Topic = topic
	}
	return messages
}

func noKey(int) string { return "" }

// TestDeadRouteDelaysNobody has 2,000 messages of a dead route at the head, and
// more all the time.
// It checks I8, and I7 once the route is mended.
func TestDeadRouteDelaysNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			b.sink.behave = byTopic(map[string]outcome{"dead": full})
			b.store.add(to("dead", 2000, b.store.now().Add(-time.Minute), noKey)...)
		})
		b.pass(10 * time.Second)
		for i := range 1000 {
			at := b.store.now().Add(20 * time.Millisecond)
			b.store.add(due(fmt.Sprint("x", i), at))
			if i%10 == 0 {
				m := due(fmt.Sprint("dead/late", i), at)
				m.Topic = "dead"
				b.store.add(m)
			}
			b.Wake(0)
			b.pass(20 * time.Millisecond)
		}
		b.pass(time.Second)
		assert.Len(t, b.store.acked, 1000)
		assert.Len(t, b.store.parked(), 2100)
		b.observer.read(func() {
			for _, l := range b.observer.latenesses {
				require.LessOrEqual(t, l, 30*time.Millisecond)
			}
		})
		assert.Equal(t, 1, strings.Count(b.logs.String(), "route unavailable"))
		assert.Zero(t, strings.Count(b.logs.String(), "sink unavailable"))
		published := len(b.sink.calls())
		b.sink.set(same(acked))
		b.pass(5 * time.Second)
		assert.Len(t, b.store.acked, 3100, "all of it is back within seconds")
		assert.Empty(t, b.store.parked())
		assert.Less(t, b.sink.last("dead/00000"), b.sink.last("dead/01999"))
		assert.Positive(t, published)
		assert.Equal(t, 2100, b.observer.settled.parked-probesOf(b), "each left the head once")
	})
}

// probesOf is how many messages were parked again after a probe.
func probesOf(b *bench) (n int) {
	for _, s := range b.store.settles {
		for i, v := range s.Verdicts {
			if v.Verb == message.VerbPark && slotOf(&s.Claim.Messages[i]) > 0 {
				n++
			}
		}
	}
	return n
}

// TestParkedMessagesReturnInOrder keeps the order of each Key and Topic while a
// route comes and goes under load.
func TestParkedMessagesReturnInOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const count = 900
		var down atomic.Bool
		var stored []string
		b := setup(t, func(_ *Config, b *bench) {
			b.sink.behave = func(ctx context.Context, batch []message.Message) []outcome {
				wait.Sleep(ctx, 3*time.Millisecond)
				list := all(batch, acked)
				for i := range batch {
					if down.Load() && batch[i].Topic == "shaky" {
						list[i] = full
						continue
					}
					b.store.read(func() { stored = append(stored, batch[i].ID) })
				}
				return list
			}
			at := b.store.now()
			b.store.add(to("shaky", count, at, func(i int) string { return fmt.Sprint("k", i%7) })...)
			b.store.add(to("calm", count, at, func(i int) string { return fmt.Sprint("k", i%7) })...)
		})
		for i := range 80 {
			down.Store(i%4 == 3)
			b.pass(20 * time.Millisecond)
		}
		down.Store(false)
		b.pass(10 * time.Second)
		require.Len(t, b.store.acked, 2*count)
		last := map[string]string{}
		for _, id := range stored {
			topic, number, _ := strings.Cut(id, "/")
			var n int
			_, err := fmt.Sscan(strings.TrimLeft(number[:4], "0")+number[4:], &n)
			require.NoError(t, err)
			chain := fmt.Sprint(topic, n%7)
			require.Less(t, last[chain], id)
			last[chain] = id
		}
		assert.Equal(t, 2*count, b.observer.settled.published)
	})
}

// TestHangingRouteIsParked has one message in twenty hang until the sink's own
// timeout: the others must not feel it, and are settled at once.
func TestHangingRouteIsParked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var heals atomic.Bool
		b := setup(t, answering(func(ctx context.Context, m *message.Message) outcome {
			if m.Topic == "hangs" && !heals.Load() {
				wait.Sleep(ctx, 10*time.Second)
				return sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, errBroker)
			}
			wait.Sleep(ctx, 2*time.Millisecond)
			return acked
		}))
		for i := range 2000 {
			m := due(fmt.Sprint("x", i), b.store.now().Add(10*time.Millisecond))
			if i%20 == 0 {
				m.Topic = "hangs"
			}
			b.store.add(m)
			b.Wake(0)
			b.pass(10 * time.Millisecond)
		}
		b.pass(time.Second)
		assert.Len(t, b.store.acked, 1900)
		b.observer.read(func() {
			for _, l := range b.observer.latenesses {
				require.LessOrEqual(t, l, 50*time.Millisecond)
			}
		})
		assert.Less(t, b.observer.failures["unknown timeout"], 20, "few were handed over before it was seen")
		heals.Store(true)
		b.pass(20 * time.Second)
		assert.Len(t, b.store.acked, 2000)
		assert.Empty(t, b.store.parked())
		messages, bytes := b.queue.config.Sink.Window.InFlight()
		assert.Zero(t, messages)
		assert.Zero(t, bytes)
	})
}

// answering gives the poller a sink that answers for each message by itself.
func answering(answer func(context.Context, *message.Message) outcome) func(*Config, *bench) {
	return func(c *Config, b *bench) { c.Sink.Sink = &streamingSink{fakeSink: b.sink, answer: answer} }
}

// hangs makes the topic of that name hang until the sink's own timeout.
var hangs = answering(func(ctx context.Context, m *message.Message) outcome {
	if m.Topic == "hangs" {
		wait.Sleep(ctx, 10*time.Second)
		return sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, errBroker)
	}
	return acked
})

// TestHangingBacklog has all that is due at first hang, more than the window
// holds. It must not be taken for the whole sink: healthy messages behind it are
// published once it was seen that it hangs.
func TestHangingBacklog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, hangs, func(_ *Config, b *bench) {
			b.store.add(to("hangs", 3000, b.store.now().Add(-time.Minute), noKey)...)
		})
		for i := range 3000 {
			b.store.add(due(fmt.Sprint("x", i), b.store.now().Add(10*time.Millisecond)))
			b.Wake(0)
			b.pass(10 * time.Millisecond)
		}
		b.pass(time.Second)
		assert.Len(t, b.store.acked, 3000)
		b.observer.read(func() {
			for i, l := range b.observer.latenesses {
				require.Less(t, l, 1500*time.Millisecond)
				if i > 200 {
					require.Less(t, l, 50*time.Millisecond)
				}
			}
		})
		assert.Zero(t, strings.Count(b.logs.String(), "sink unavailable"))
		assert.Equal(t, 1, strings.Count(b.logs.String(), "route unavailable"))
	})
}

// TestHangingBacklogOfManyShards: what one shard has found to hang, the others know.
// Each by itself would fill the window once more.
func TestHangingBacklogOfManyShards(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const count = 32
		stores := make(shards, count)
		polled := make([]int, count)
		for i := range stores {
			stores[i], polled[i] = newFakeStore(), i
			stores[i].add(to("hangs", 200, stores[i].now().Add(-time.Minute), noKey)...)
		}
		b := setup(t, on(stores, "me", polled...), hangs)
		for i := range 1000 {
			store := stores[i%count]
			store.add(due(fmt.Sprint("x", i), store.now().Add(10*time.Millisecond)))
			b.Wake(i % count)
			b.pass(10 * time.Millisecond)
		}
		b.pass(time.Second)
		b.observer.read(func() {
			require.Len(t, b.observer.latenesses, 1000)
			require.Less(t, slices.Max(b.observer.latenesses), 2*time.Second)
		})
	})
}

// TestSlowLinkIsNoHangingRoute: a slow link takes seconds for what is in flight, in order. Nothing on it hangs: what was
// handed over together is answered one after the other, and nothing that was handed over later.
func TestSlowLinkIsNoHangingRoute(t *testing.T) {
	for name, c := range map[string]struct {
		count int
		each  time.Duration
	}{"many": {3000, 9 * time.Millisecond}, "slow from the first": {3, time.Second}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var mu sync.Mutex
				var free time.Time
				oneByOne := func(ctx context.Context, _ *message.Message) outcome {
					mu.Lock()
					if now := time.Now(); free.Before(now) {
						free = now
					}
					free = free.Add(c.each)
					at := free
					mu.Unlock()
					wait.Sleep(ctx, time.Until(at))
					return acked
				}
				b := setup(t, answering(oneByOne), func(_ *Config, b *bench) {
					b.store.add(to("t", c.count, b.store.now(), noKey)...)
				})
				b.pass(30 * time.Second)
				assert.Len(t, b.store.acked, c.count)
				assert.Zero(t, strings.Count(b.logs.String(), "route unavailable"))
				assert.Zero(t, b.observer.settled.parked)
			})
		})
	}
}

// A sink that was down is not kept so by what is due first and has nowhere to go:
// a probe that only parks is no probe.
func TestBackBehindADeadRoute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var isLost atomic.Bool
		b := setup(t, func(_ *Config, b *bench) {
			b.sink.behave = func(ctx context.Context, batch []message.Message) []outcome {
				if isLost.Load() {
					return same(sinks.FailedWhole(sinks.Unavailable, sinks.ReasonConnection, errBroker))(ctx, batch)
				}
				return byTopic(map[string]outcome{"dead": full})(ctx, batch)
			}
			b.store.add(to("dead", 1, b.store.now(), noKey)...)
		})
		b.pass(time.Second)
		isLost.Store(true)
		healthy := due("x", b.store.now())
		b.store.add(healthy)
		b.Wake(0)
		b.pass(time.Second)
		require.Equal(t, 1, strings.Count(b.logs.String(), "sink unavailable"))
		late := to("dead", 500, b.store.now().Add(-time.Minute), noKey)
		for i := range late {
			late[i].ID += "late"
		}
		b.store.add(late...)
		isLost.Store(false)
		b.pass(7 * time.Second)
		assert.Equal(t, []string{"x"}, b.store.acked)
		assert.Len(t, b.store.parked(), 501)
	})
}

// streamingSink answers for each message by itself.
type streamingSink struct {
	*fakeSink
	answer func(context.Context, *message.Message) outcome
}

func (s *streamingSink) Publish(ctx context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	done := make(chan struct{})
	for i := range batch {
		go func() {
			outcomes.Report(i, s.answer(ctx, &batch[i]))
			done <- struct{}{}
		}()
	}
	for range batch {
		<-done
	}
}

// TestAcknowledgedIsSettledWhileMatesHang looks at Redis while a mate hangs.
func TestAcknowledgedIsSettledWhileMatesHang(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, answering(func(ctx context.Context, m *message.Message) outcome {
			if m.ID == "m0007" {
				wait.Sleep(ctx, 8*time.Second)
			}
			return acked
		}))
		b.store.add(many(20, b.store.now())...)
		b.Wake(0)
		b.pass(250 * time.Millisecond)
		assert.Len(t, b.store.acked, 19)
		b.store.read(func() {
			require.Len(t, b.store.claims, 1, "the rest of the claim lives on")
			for _, c := range b.store.claims {
				require.Len(t, c.messages, 1)
			}
		})
		assert.Equal(t, int64(1), b.observer.inFlight.Load())
		b.pass(10 * time.Second)
		assert.Len(t, b.store.acked, 20)
		assert.Zero(t, b.observer.stale)
		assert.Empty(t, b.store.reclaims)
	})
}

// TestPatienceEnds sends what is missing for too long to the dead letters, but
// not what is full.
func TestPatienceEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.ParkPatience = time.Hour
			b.sink.behave = byTopic(map[string]outcome{"gone": missing, "full": full})
			b.store.add(to("gone", 700, b.store.now(), noKey)...)
			b.store.add(to("full", 10, b.store.now(), noKey)...)
		})
		b.pass(59 * time.Minute)
		assert.Empty(t, b.store.dead)
		assert.Len(t, b.store.parked(), 710)
		b.pass(2 * time.Minute)
		require.Len(t, b.store.dead, 700)
		assert.Contains(t, b.store.dead["gone/00699"].Reason, "unavailable for 1h0m")
		assert.Contains(t, b.store.dead["gone/00699"].Reason, "topic_missing")
		assert.Zero(t, b.store.dead["gone/00001"].Attempts.Failures)
		assert.Len(t, b.store.parked(), 10)
		b.store.add(to("gone", 3, b.store.now(), noKey)...)
		b.pass(30 * time.Minute)
		assert.Len(t, b.store.dead, 700, "patience begins anew")
	})
}

// TestParkedOutlivesItsHolder: the next holder finds what is parked, when it was
// closed, and publishes it in order.
func TestParkedOutlivesItsHolder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := newFakeStore()
		first := setup(t, on(store, "first", 0), func(_ *Config, b *bench) {
			b.sink.behave = byTopic(map[string]outcome{"t": full})
		})
		store.add(to("t", 50, store.now(), func(int) string { return "k" })...)
		first.pass(10 * time.Second)
		since := store.routes[1].Since
		require.NoError(t, first.stop(t, 5*time.Second))
		require.Len(t, store.parked(), 50)
		next := setup(t, on(store, "next", 0), func(_ *Config, b *bench) {
			b.sink.behave = byTopic(map[string]outcome{"t": full})
		})
		store.add(keyed("t/late", "k", store.now()))
		next.pass(5 * time.Second)
		require.Len(t, store.parked(), 51, "it does not pass the others")
		assert.Equal(t, since, store.routes[1].Since)
		before := len(next.sink.ids())
		next.sink.set(same(acked))
		next.pass(5 * time.Second)
		require.Len(t, store.acked, 51)
		published := next.sink.ids()[before:]
		assert.Len(t, published, 51)
		assert.IsIncreasing(t, published)
	})
}

// TestManyDeadRoutes has more dead routes than there are slots.
func TestManyDeadRoutes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const slots = 30
		var healed atomic.Bool
		b := setup(t, func(_ *Config, b *bench) {
			b.slots = slots
			b.sink.behave = func(_ context.Context, batch []message.Message) []outcome {
				list := all(batch, acked)
				for i := range batch {
					if !healed.Load() && strings.HasPrefix(batch[i].Topic, "dead") {
						list[i] = full
					}
				}
				return list
			}
			for i := range slots + 200 {
				b.store.add(to(fmt.Sprint("dead", i), 1, b.store.now(), noKey)...)
			}
		})
		b.pass(20 * time.Second)
		b.store.add(many(10, b.store.now())...)
		b.Wake(0)
		b.pass(time.Second)
		assert.Len(t, b.store.acked, 10)
		assert.Len(t, b.store.parked(), slots+200)
		healed.Store(true)
		b.pass(time.Minute)
		assert.Len(t, b.store.acked, slots+210)
		assert.Empty(t, b.running[0].shard.routes.All())
	})
}

// TestCrowdedShardsGetTheirTurn has many shards share a window that is small,
// and a broker so slow that leases are renewed while they wait for it.
func TestCrowdedShardsGetTheirTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const count = 30
		stores := make(shards, count)
		polled := make([]int, count)
		for i := range stores {
			stores[i], polled[i] = newFakeStore(), i
			stores[i].add(many(20, stores[i].now())...)
		}
		b := setup(t, on(stores, "me", polled...), func(_ *Config, b *bench) { b.sink.latency = 9 * time.Second })
		b.pass(20 * time.Minute)
		for i, store := range stores {
			store.read(func() { require.Len(t, store.acked, 20, "shard %d", i) })
		}
		messages, bytes := b.queue.config.Sink.Window.InFlight()
		assert.Zero(t, messages)
		assert.Zero(t, bytes)
	})
}

// nacked is what a full queue answers, beside which there may be others.
var nacked = outcome{Class: sinks.Unknown, Reason: sinks.ReasonRefused, Err: errBroker, OfRoute: true}

// TestANackingRoute has a route that refuses for an hour, and proves nothing by it:
// no attempt is counted, what was sent is marked each time, and little is sent.
func TestANackingRoute(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Retry.Attempts = 1
			b.sink.behave = byTopic(map[string]outcome{"full": nacked})
			b.store.add(to("full", 50, b.store.now(), noKey)...)
		})
		b.pass(time.Hour)
		b.store.add(due("x", b.store.now()))
		b.Wake(0)
		b.pass(time.Second)
		assert.Equal(t, []string{"x"}, b.store.acked, "others go on")
		sent, after := map[string]int{}, 0
		for i, call := range b.sink.calls() {
			for _, id := range call.ids {
				if sent[id]++; i > 0 && id != "x" {
					after++
				}
			}
		}
		assert.Less(t, after, int(time.Hour/(4*time.Second))*3/2, "one a probe, and two every fourth")
		assert.Len(t, b.store.parked(), 50)
		copies, marked := 0, 0
		b.store.read(func() {
			for i := range b.store.waiting {
				m := &b.store.waiting[i]
				assert.Equal(t, message.Attempts{Begun: sent[m.ID], MaybeOut: sent[m.ID]}, m.Attempts, m.ID)
				copies += max(0, sent[m.ID]-1)
				marked += min(1, sent[m.ID])
			}
		})
		b.observer.read(func() { assert.Equal(t, copies, b.observer.settled.suspected, "each further copy is counted") })

		b.sink.set(same(acked))
		b.pass(5 * time.Second) // As any route that is healed.
		assert.Len(t, b.store.acked, 51)
		assert.Empty(t, b.store.dead)
		b.observer.read(func() { assert.Equal(t, copies+marked, b.observer.settled.suspected) })
	})
}

// TestAMessageThatIsAlwaysNacked keeps its route closed for no longer than a few probes,
// and is never given up.
func TestAMessageThatIsAlwaysNacked(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Retry.Attempts = 1
			b.sink.behave = eachBy(func(id string) outcome {
				if id == "m0000" {
					return nacked
				}
				return acked
			})
			b.store.add(many(100, b.store.now())...)
		})
		for i := range 200 {
			b.store.add(due(fmt.Sprint("x", i), b.store.now()))
			b.Wake(0)
			b.pass(10 * time.Second)
		}
		b.pass(2 * time.Minute)
		assert.Len(t, b.store.acked, 299)
		assert.Empty(t, b.store.dead)
	})
}

// TestParkedAgainByAFailover: Redis is put back to when messages were parked whose route has
// been open for long. Whoever holds the shard looks into the slots again, also where the answer of
// the first claim after it is lost.
func TestParkedAgainByAFailover(t *testing.T) {
	for name, c := range map[string]struct{ isLost, takes bool }{
		"claim": {}, "lost claim": {isLost: true}, "lost claim of a message": {isLost: true, takes: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				lose := false
				b := setup(t, func(_ *Config, b *bench) {
					b.sink.behave = byTopic(map[string]outcome{"t": full})
					b.store.afterClaim = func(message.ClaimRequest) error {
						if !lose {
							return nil
						}
						lose = false
						return errors.New("connection reset")
					}
				})
				b.store.add(to("t", 20, b.store.now(), noKey)...)
				b.pass(5 * time.Second)
				require.Len(t, b.store.parked(), 20)
				var parked []message.ClaimedMessage
				used := map[string]uint64{}
				b.store.read(func() { parked, used = slices.Clone(b.store.waiting), maps.Clone(b.store.used) })
				b.sink.set(same(acked))
				b.pass(10 * time.Second)
				require.Len(t, b.store.acked, 20)
				b.store.read(func() { b.store.waiting, b.store.used, lose = parked, used, c.isLost })
				want := 40
				if c.takes {
					b.store.add(to("u", 1, b.store.now(), noKey)...)
					b.Wake(0)
					want++
				}
				b.pass(10 * time.Second)
				assert.False(t, lose)
				assert.Empty(t, b.store.parked())
				assert.Len(t, b.store.acked, want)
			})
		})
	}
}

// TestNamelessSlot: a failover has lost which route a slot is of. What is due of that route
// goes to no other slot, past what waits in this one: a message tells the name first. It
// checks I15.
func TestNamelessSlot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			b.sink.behave = byTopic(map[string]outcome{"t": full})
			list := to("t", 20, b.store.now().Add(-time.Minute), func(int) string { return "k" })
			for i := range 10 {
				b.store.put(list[i], 1, list[i].DueAt)
			}
			b.store.add(list[10:]...)
		})
		b.pass(5 * time.Second)
		require.Len(t, b.store.parked(), 20)
		tried := b.sink.calls()
		require.NotEmpty(t, tried)
		for _, call := range tried {
			assert.Less(t, call.ids[0], "t/00010", "what was due is not tried")
		}
		b.sink.set(same(acked))
		b.pass(10 * time.Second)
		var ids []string
		for _, call := range b.sink.calls()[len(tried):] {
			ids = append(ids, call.ids...)
		}
		assert.Len(t, ids, 20)
		assert.True(t, slices.IsSorted(ids), ids)
	})
}
