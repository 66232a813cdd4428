package poller

import (
	"context"
	"fmt"
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

// eachBy answers for each message by its ID.
func eachBy(decide func(id string) outcome) func(context.Context, []message.Message) []outcome {
	return func(_ context.Context, batch []message.Message) []outcome {
		outcomes := make([]outcome, len(batch))
		for i := range batch {
			outcomes[i] = decide(batch[i].ID)
		}
		return outcomes
	}
}

func same(o outcome) func(context.Context, []message.Message) []outcome {
	return eachBy(func(string) outcome { return o })
}

// TestSinkDown checks I9: one probe at a time is in flight, and nothing is used up.
func TestSinkDown(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			b.sink.behave = same(sinks.FailedWhole(sinks.Unavailable, sinks.ReasonConnection, errBroker))
			b.store.add(many(3000, b.store.now())...)
		})
		b.pass(time.Minute)
		assertProbes(t, b)
		b.store.read(func() {
			require.Len(t, b.store.waiting, 3000)
			require.Empty(t, b.store.claims)
			assert.Empty(t, b.store.dead)
			for _, m := range b.store.waiting {
				require.Zero(t, m.Attempts)
			}
		})
		assert.Equal(t, 1, strings.Count(b.logs.String(), "sink unavailable"))
		assert.True(t, b.queue.config.Sink.Window.IsDown())
		b.sink.set(same(acked))
		b.pass(6 * time.Second)
		assert.Len(t, b.store.acked, 3000)
		assert.Equal(t, 1, strings.Count(b.logs.String(), "sink back"))
		assert.False(t, b.queue.config.Sink.Window.IsDown())
	})
}

// TestSinkDownIsForgotten: where the only message that met the outage is cancelled meanwhile,
// nothing is left to see by that the sink is up again, and it counts as up all the same.
func TestSinkDownIsForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			b.sink.behave = same(sinks.FailedWhole(sinks.Unavailable, sinks.ReasonConnection, errBroker))
			b.store.add(many(1, b.store.now())...)
		})
		b.pass(time.Minute)
		assert.True(t, b.queue.config.Sink.Window.IsDown())
		cancelled := false
		for !cancelled { // It may be in flight.
			b.store.read(func() { cancelled, b.store.waiting = len(b.store.waiting) == 1, nil })
			b.pass(time.Second)
		}
		b.pass(time.Minute)
		assert.False(t, b.queue.config.Sink.Window.IsDown())
	})
}

// TestSilentSink never answers: its routes are parked, and none of their messages
// is given up for what may be no fault of its own.
func TestSilentSink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			b.sink.behave = func(ctx context.Context, batch []message.Message) []outcome {
				wait.Sleep(ctx, 10*time.Second)
				return all(batch, sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, errBroker))
			}
			b.store.add(many(3000, b.store.now())...)
		})
		b.pass(time.Hour)
		b.store.read(func() {
			assert.Empty(t, b.store.dead)
			for _, m := range b.store.waiting {
				require.Zero(t, m.Attempts.Failures)
				require.LessOrEqual(t, m.Attempts.Unknowns, 1)
			}
		})
		assert.Equal(t, 1, strings.Count(b.logs.String(), "route unavailable"))
		assert.Less(t, len(b.sink.calls()), 400, "with pauses")
		b.sink.set(same(acked))
		b.pass(20 * time.Second)
		assert.Len(t, b.store.acked, 3000)
	})
}

// assertProbes checks what a shard may do while its sink is down.
func assertProbes(t *testing.T, b *bench) {
	t.Helper()
	probes, last := 0, time.Time{}
	down := b.sink.calls()[0].at
	for _, r := range b.store.requests {
		if !r.at.After(down) {
			continue
		}
		if r.Max > 0 {
			probes++
			require.Contains(t, []int{1, 8}, r.Max)
			require.Empty(t, r.Live, "one probe at a time")
		}
		if !last.IsZero() {
			require.LessOrEqual(t, r.at.Sub(last), 2*time.Second, "the lease is kept")
		}
		last = r.at
	}
	assert.Greater(t, probes, 10)
	assert.Less(t, probes, 30, "with backoff")
}

func TestRefusedMessageDoesNotDisturbOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Retry.Attempts = 3
			b.sink.behave = eachBy(func(id string) outcome {
				switch id {
				case "m0003":
					return sinks.Failed(sinks.Retryable, sinks.ReasonTopicMissing, errBroker)
				case "m0004":
					return sinks.Failed(sinks.Permanent, sinks.ReasonTooLarge, errBroker)
				}
				return acked
			})
			b.store.add(many(10, b.store.now())...)
		})
		b.pass(0)
		assert.Len(t, b.store.acked, 8)
		b.pass(10 * time.Second)
		assert.Len(t, b.store.dead, 2)
		assert.Equal(t, "attempts used up: retryable topic_missing: broker trouble", b.store.dead["m0003"].Reason)
		tries := 0
		for _, call := range b.sink.calls() {
			if slices.Contains(call.ids, "m0003") {
				tries++
			}
		}
		assert.Equal(t, 3, tries)
		assert.Equal(t, []string{"t", "t", "t"}, b.observer.missing)
		assert.Equal(t, 2, strings.Count(b.logs.String(), "message dead-lettered"))
		assert.Equal(t, 1, strings.Count(b.logs.String(), "will be tried again"))
		assert.Equal(t, map[string]int{"retryable topic_missing": 3, "permanent too_large": 1}, b.observer.failures)
	})
}

// TestUnknownAmongOthersCountsAfterFive has a message whose outcome is always
// unknown, while others of its route are taken.
func TestUnknownAmongOthersCountsAfterFive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Retry.Attempts = 2
			b.sink.behave = eachBy(func(id string) outcome {
				if id == "m0000" {
					return sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, errBroker)
				}
				return acked
			})
			b.store.add(many(100, b.store.now())...)
		})
		for i := range 600 {
			b.store.add(due(fmt.Sprint("x", i), b.store.now()))
			b.Wake(0)
			b.pass(time.Second)
		}
		assert.Len(t, b.store.acked, 699)
		dead := b.store.dead["m0000"].Attempts
		assert.Equal(t, 2, dead.Failures)
		assert.GreaterOrEqual(t, dead.MaybeOut, 10)
		assert.Equal(t, dead.MaybeOut, dead.Begun)
		assert.Less(t, len(b.sink.calls()), 900, "no spinning")
		for _, s := range b.store.settles {
			for _, v := range s.Verdicts {
				assert.NotEqual(t, message.VerbRetry, v.Verb, "it keeps its place")
			}
		}
	})
}

// TestUnavailablePartDoesNotSpin has a sink that can publish to one topic only.
func TestUnavailablePartDoesNotSpin(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			b.sink.behave = eachBy(func(id string) outcome {
				if id < "m0100" {
					return sinks.Failed(sinks.Unavailable, sinks.ReasonBroker, errBroker)
				}
				return acked
			})
			messages := many(1000, b.store.now())
			for i := range messages[:100] {
				messages[i].Topic = "dead"
			}
			b.store.add(messages...)
		})
		for range 20 {
			b.store.add(due(fmt.Sprint("x", time.Now().UnixNano()), b.store.now()))
			b.pass(500 * time.Millisecond)
		}
		assert.Less(t, len(b.store.requests), 1000, "they are parked one by one, in a window that is small at first")
		assert.Len(t, b.store.acked, 920)
		assert.Len(t, b.store.parked(), 100)
		assert.Equal(t, 1, strings.Count(b.logs.String(), "route unavailable"))
	})
}

func TestPoisonEntryGoesAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			messages := many(5, b.store.now())
			messages[1].Err = message.ErrUndecodable
			messages[3].Err = message.ErrMissingBody
			messages[3].Key = "k"
			b.store.add(messages...)
		})
		b.pass(0)
		assert.Equal(t, []string{"m0000", "m0002", "m0004"}, b.store.acked)
		assert.Equal(t, "decode: undecodable message", b.store.dead["m0001"].Reason)
		assert.Equal(t, "missing body", b.store.dead["m0003"].Reason)
		assert.Equal(t, []string{"m0000", "m0002", "m0004"}, b.sink.calls()[0].ids)
		assert.Equal(t, 2, b.observer.decodeErrors)
	})
}

func TestPanicOfTheSink(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Retry.Attempts = 2
			b.sink.behave = func(_ context.Context, batch []message.Message) []outcome {
				for i := range batch {
					if batch[i].ID == "m0200" {
						panic("poison")
					}
				}
				return all(batch, acked)
			}
			b.store.add(many(600, b.store.now())...)
		})
		b.pass(2 * time.Minute)
		assert.Len(t, b.store.acked, 599)
		assert.Equal(t, "attempts used up: unknown panic_alone: publish panicked: poison", b.store.dead["m0200"].Reason)
		assert.Less(t, len(b.sink.calls()), 150)
	})
}

// TestLonelyUnknownDoesNotStopTheShard: the head's outcome is always unknown,
// so a probe of one message alone never succeeds.
func TestLonelyUnknownDoesNotStopTheShard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Claims.Batch = 20
			b.sink.behave = eachBy(func(id string) outcome {
				if id == "m0000" {
					return sinks.Failed(sinks.Unknown, sinks.ReasonTimeout, errBroker)
				}
				return acked
			})
			b.store.add(due("m0000", b.store.now()))
		})
		b.pass(time.Second)
		b.store.add(many(10, b.store.now())[1:]...)
		b.pass(time.Minute)
		assert.Len(t, b.store.acked, 9)
	})
}

// panickingObserver is an observer that panics on one message.
type panickingObserver struct{ *recorder }

func (f panickingObserver) ObserveLateness(queue string, lateness time.Duration) {
	f.recorder.ObserveLateness(queue, lateness)
	if len(f.latenesses) == 2 {
		panic("observer")
	}
}

func TestPanicWhileJudgingConcernsOneMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Observer = panickingObserver{b.observer}
			b.store.add(many(5, b.store.now())...)
		})
		b.pass(0)
		assert.Len(t, b.store.acked, 5)
		assert.Len(t, b.store.settles, 1)
	})
}

func TestSinkThatMiscounts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			b.sink.behave = func(_ context.Context, batch []message.Message) []outcome {
				return all(batch[:1], acked)
			}
			b.store.add(many(2, b.store.now())...)
		})
		b.pass(10 * time.Second)
		assert.Equal(t, []string{"m0000", "m0001"}, b.store.acked)
		assert.Equal(t, map[string]int{"unknown no_outcome": 1}, b.observer.failures)
	})
}

func TestLostSettleAnswerIsRepeated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lost := 0
		b := setup(t, func(_ *Config, b *bench) {
			b.store.afterSettle = func(message.Settlement) error {
				if lost++; lost < 4 {
					return errRedis
				}
				return nil
			}
			b.store.add(due("m", b.store.now()))
		})
		b.pass(5 * time.Second)
		assert.Equal(t, []string{"m"}, b.store.acked)
		require.Len(t, b.store.settles, 4)
		assert.False(t, b.store.settles[0].Repeated)
		assert.True(t, b.store.settles[1].Repeated)
		assert.Zero(t, b.observer.stale)
	})
}

// TestStaleSettleIsCounted checks I14.
func TestStaleSettleIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			b.store.beforeSettle = func(s message.Settlement) error {
				b.store.read(func() { delete(b.store.claims, s.Claim.Token) })
				return nil
			}
			b.store.add(due("m", b.store.now()))
		})
		b.pass(time.Second)
		assert.Equal(t, 1, b.observer.stale)
		assert.Equal(t, 1, strings.Count(b.logs.String(), "settled too late"))
	})
}

// TestLateAcksAreHandedOver settles too late, only when asked again, never, and
// in time: the rows of acknowledged outbox messages must be told in all but the last.
func TestLateAcksAreHandedOver(t *testing.T) {
	for name, test := range map[string]struct {
		settle func(*fakeStore, message.Settlement) error
		told   bool
	}{
		"too late": {func(f *fakeStore, s message.Settlement) error {
			f.read(func() { delete(f.claims, s.Claim.Token) })
			return nil
		}, true},
		"again": {func(_ *fakeStore, s message.Settlement) error {
			if !s.Repeated {
				return errRedis
			}
			return nil
		}, true},
		"never":   {func(*fakeStore, message.Settlement) error { return errRedis }, true},
		"in time": {func(*fakeStore, message.Settlement) error { return nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				var (
					mu   sync.Mutex
					told []string
				)
				b := setup(t, func(c *Config, b *bench) {
					c.Hooks.OnLateAcks = func(acked []message.ClaimedMessage) {
						mu.Lock()
						defer mu.Unlock()
						for _, m := range acked {
							told = append(told, m.ID+" "+m.Token)
						}
					}
					b.store.beforeSettle = func(s message.Settlement) error { return test.settle(b.store, s) }
					b.sink.behave = func(_ context.Context, batch []message.Message) []outcome {
						list := all(batch, acked)
						for i := range batch {
							if batch[i].ID == "row-2" {
								list[i] = sinks.Failed(sinks.Retryable, sinks.ReasonUnroutable, errBroker)
							}
						}
						return list
					}
					for id, token := range map[string]string{"row-1": "~00000000000000a", "row-2": "~00000000000000b", "plain": "00000000000000cc"} {
						m := due(id, b.store.now())
						m.Token = token
						b.store.add(m)
					}
				})
				b.pass(119 * time.Second)
				require.NoError(t, b.stop(t, 10*time.Second))
				mu.Lock()
				defer mu.Unlock()
				if !test.told {
					assert.Empty(t, told)
					return
				}
				require.NotEmpty(t, told)
				for _, row := range told {
					assert.Equal(t, "row-1 ~00000000000000a", row)
				}
			})
		})
	}
}

// TestSettlingThatAlwaysFailsEndsByReclaim: only settling fails, and the claim
// must not be kept alive for ever.
func TestSettlingThatAlwaysFailsEndsByReclaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			b.store.beforeSettle = func(s message.Settlement) error {
				if s.Claim.Token.Number == 2 {
					return errRedis
				}
				return nil
			}
			b.store.add(due("m", b.store.now()))
		})
		b.pass(59 * time.Second)
		assert.Empty(t, b.store.acked)
		b.pass(10 * time.Second)
		assert.Equal(t, []string{"m"}, b.store.acked, "nobody waits for the claim's deadline")
		assert.Equal(t, int64(0), b.observer.inFlight.Load())
		assert.Equal(t, 1, strings.Count(b.logs.String(), "claim left to be reclaimed"))
	})
}

// A panic outside the sink gives its batch up: the claim is reclaimed, and its messages are
// published after all.
func TestPanicOfABatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var panicked atomic.Bool
		b := setup(t, func(c *Config, b *bench) {
			c.Sink.Open = panicsOnce(&panicked)
			dead := keyed("parked", "k", b.store.now())
			dead.Topic = "dead"
			b.sink.behave = byTopic(map[string]outcome{"dead": full})
			b.store.add(dead)
		})
		b.pass(50 * time.Millisecond)
		require.Equal(t, []string{"parked"}, b.store.parked())
		sealed := keyed("sealed", "k", b.store.now())
		sealed.Headers = map[string]string{message.HeaderSealed: "key"}
		late := keyed("late", "k", b.store.now())
		late.Topic = "dead" // Sent to the slot by the batch that panics.
		b.store.add(sealed, keyed("behind", "k", b.store.now()), late)
		b.Wake(0)
		b.pass(time.Second)
		assert.True(t, panicked.Load())
		assert.ElementsMatch(t, []string{"sealed", "behind"}, b.store.acked)
		assert.Equal(t, int64(0), b.observer.inFlight.Load())
		b.sink.set(same(acked))
		b.pass(10 * time.Second)
		assert.Len(t, b.store.acked, 4, "the slot is claimed from")
	})
}

// panicsOnce opens messages, but for the first one.
func panicsOnce(panicked *atomic.Bool) func(*message.Message) error {
	return func(m *message.Message) error {
		if !panicked.Swap(true) {
			panic("bad key")
		}
		delete(m.Headers, message.HeaderSealed)
		return nil
	}
}

// TestOrderAfterAPanicOfABatch: the claim that finds the batch's claim, which nobody works on any more, has taken later messages of its
// Keys. They wait until those are back (I15).
func TestOrderAfterAPanicOfABatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var panicked atomic.Bool
		b := setup(t, func(c *Config, b *bench) {
			c.Claims.Batch = 1
			c.Sink.Open = panicsOnce(&panicked)
			sealed := keyed("1", "k", b.store.now())
			sealed.Headers = map[string]string{message.HeaderSealed: "key"}
			b.store.add(sealed, keyed("2", "k", b.store.now()), keyed("3", "k", b.store.now()))
		})
		b.pass(time.Second)
		assert.True(t, panicked.Load())
		var published []string
		for _, call := range b.sink.calls() {
			published = append(published, call.ids...)
		}
		assert.Equal(t, []string{"1", "2", "3"}, published)
	})
}
