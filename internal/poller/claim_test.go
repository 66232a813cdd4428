package poller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

func TestLostClaimAnswerIsAskedForAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		lost := 0
		b := setup(t, func(_ *Config, b *bench) {
			b.store.afterClaim = func(r message.ClaimRequest) error {
				if r.Max == 0 {
					return nil
				}
				if lost++; lost <= 3 {
					return errRedis
				}
				return nil
			}
			b.store.add(many(3, b.store.now())...)
		})
		b.pass(time.Second)
		b.store.add(due("later", b.store.now())) // Not part of the claim that was lost.
		b.pass(3 * time.Second)
		takes := b.store.takes()
		require.GreaterOrEqual(t, len(takes), 5)
		for _, r := range takes[1:4] {
			assert.Equal(t, takes[0].ClaimRequest, r.ClaimRequest)
		}
		assert.Greater(t, takes[4].Token.Number, takes[0].Token.Number)
		assert.Equal(t, []string{"m0000", "m0001", "m0002", "later"}, b.store.acked)
		assert.Equal(t, 1, strings.Count(b.logs.String(), "redis unavailable"))
		assert.Equal(t, 1, strings.Count(b.logs.String(), "redis back"))
	})
}

// TestRedisOutageDoesNotEndTheLoop checks I7: what is due is published soon after.
func TestRedisOutageDoesNotEndTheLoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var down bool
		b := setup(t, func(_ *Config, b *bench) {
			b.store.beforeClaim = func(message.ClaimRequest) error {
				if down {
					return errRedis
				}
				return nil
			}
		})
		b.pass(time.Second)
		down = true
		b.store.add(due("m", b.store.now()))
		before := len(b.store.requests)
		b.pass(10 * time.Minute)
		assert.InDelta(t, 1200, len(b.store.requests)-before, 200, "backoff up to half a second")
		assert.NoError(t, b.Live())
		down = false
		b.pass(2 * time.Second)
		assert.Equal(t, []string{"m"}, b.store.acked)
		assert.Equal(t, 1, strings.Count(b.logs.String(), "redis unavailable"))
	})
}

func TestHeldShardIsWaitedForAndItsClaimsReclaimed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			b.store.holder, b.store.until = "other", b.store.now().Add(5*time.Second)
			b.store.claims[message.ClaimToken{Instance: "other", Number: 3}] = &fakeClaim{messages: many(2, b.store.now())}
			b.store.claims[message.ClaimToken{Instance: "other", Number: 4}] = &fakeClaim{messages: many(2, b.store.now())}
		})
		b.Wake(0)
		b.pass(4900 * time.Millisecond)
		assert.LessOrEqual(t, len(b.store.requests), 20, "no busy looking")
		assert.Empty(t, b.sink.calls())
		b.pass(200 * time.Millisecond)
		foreign := message.Reclaim{Instance: "me", Foreign: true}
		assert.Equal(t, []message.Reclaim{foreign, foreign, foreign}, b.store.reclaims)
		assert.Len(t, b.store.acked, 4)
		refused := slices.IndexFunc(b.store.requests, func(r request) bool { return r.state == message.ClaimReclaimFirst })
		require.Positive(t, refused)
		first, again := b.store.requests[refused], b.store.requests[refused+1]
		assert.Equal(t, first.Token, again.Token)
	})
}

func TestOutdatedNumbersAreSkipped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			b.store.used["me"] = 5000
			b.store.add(due("m", b.store.now()))
		})
		b.pass(2 * time.Second)
		assert.Equal(t, []string{"m"}, b.store.acked)
		assert.Less(t, len(b.store.requests), 20)
	})
}

func TestMissingLayoutIsReported(t *testing.T) {
	bubble(t, func(t *testing.T) {
		calls := 0
		b := setup(t, func(c *Config, b *bench) {
			b.store.noLayout = true
			b.store.add(due("m", b.store.now()))
			c.Hooks.OnNoLayout = func(context.Context, int) {
				if calls++; calls == 5 {
					b.store.read(func() { b.store.noLayout = false })
				}
			}
		})
		b.pass(5 * time.Second)
		assert.Equal(t, 5, calls)
		assert.Equal(t, []string{"m"}, b.store.acked)
		assert.Zero(t, strings.Count(b.logs.String(), "the layout is missing"), "OnNoLayout says what it means")
	})
}

func TestMissingLayoutIsSaidOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) { b.store.noLayout = true })
		b.pass(time.Minute)
		assert.Equal(t, 1, strings.Count(b.logs.String(), "the layout is missing"))
	})
}

func TestStrayClaimsAreReclaimed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(_ *Config, b *bench) {
			b.store.used["me"] = 0
			b.store.claims[message.ClaimToken{Instance: "me", Number: 999}] = &fakeClaim{
				messages: many(1, b.store.now()), deadline: b.store.now().Add(time.Second),
			}
		})
		b.pass(4 * time.Second)
		assert.Equal(t, []string{"m0000"}, b.store.acked)
		stray := message.Reclaim{Instance: "me", Stray: message.ClaimToken{Instance: "me", Number: 999}}
		assert.Equal(t, []message.Reclaim{stray, stray}, b.store.reclaims)
		assert.Equal(t, 1, b.observer.settled.suspected)
		assert.Equal(t, 1, b.observer.reclaimed)
	})
}

func TestNoPublishStartsAfterTheLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var down bool
		b := setup(t, func(c *Config, b *bench) {
			c.Claims.Batch = 1
			b.sink.latency = 8 * time.Second
			b.store.beforeClaim = func(message.ClaimRequest) error {
				if down {
					return errRedis
				}
				return nil
			}
			b.store.add(keyed("a", "k", b.store.now()), keyed("b", "k", b.store.now()))
		})
		b.pass(time.Second)
		down = true // The lease lapses after five seconds, a is acknowledged after eight.
		b.pass(20 * time.Second)
		assert.Equal(t, []string{"a"}, b.store.acked)
		require.Len(t, b.sink.calls(), 1, "b is not published")
		require.Len(t, b.store.settles, 2)
		assert.Equal(t, message.Verdict{Verb: message.VerbRelease}, b.store.firstVerdict("b"))
		down = false
		b.pass(20 * time.Second)
		assert.Equal(t, []string{"a", "b"}, b.store.acked)
	})
}

func TestALapsedLeaseDoesNotComeBackForOldBatches(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var down bool
		b := setup(t, func(c *Config, b *bench) {
			c.Claims.Batch = 1
			b.sink.latency = 8 * time.Second
			b.store.beforeClaim = func(message.ClaimRequest) error {
				if down {
					return errRedis
				}
				return nil
			}
			b.store.add(keyed("a", "k", b.store.now()), keyed("b", "k", b.store.now()))
		})
		b.pass(time.Millisecond)
		down = true
		b.pass(5500 * time.Millisecond)
		down = false // Renewed before a is acknowledged, but another may have had it in between.
		b.pass(3 * time.Second)
		require.GreaterOrEqual(t, len(b.store.settles), 2)
		assert.Equal(t, message.VerbRelease, b.store.firstVerdict("b").Verb)
		b.pass(10 * time.Second)
		assert.Equal(t, []string{"a", "b"}, b.store.acked)
	})
}

func TestNothingIsPublishedOnceAnotherHoldsTheShard(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Claims.Batch = 1
			b.sink.latency = 3 * time.Second
			b.store.add(keyed("a", "k", b.store.now()), keyed("b", "k", b.store.now()))
		})
		b.pass(time.Second)
		b.store.holder, b.store.until = "other", b.store.now().Add(time.Hour)
		b.pass(6 * time.Second)
		assert.Len(t, b.sink.calls(), 1, "b waited for a, and the look at two seconds told that the shard is lost")
	})
}

func TestClaimDeadlineStopsPublishing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		failed := false
		b := setup(t, func(c *Config, b *bench) {
			c.Claims.Timeout = 4 * time.Second
			// The answer of the first claim comes after its deadline.
			b.store.afterClaim = func(r message.ClaimRequest) error {
				if !failed && r.Max > 0 {
					failed = true
					return errRedis
				}
				if r.Token.Number == 2 && b.store.requests[1].at.Add(c.Claims.Timeout).After(time.Now()) {
					return errRedis
				}
				return nil
			}
			b.store.add(due("m", b.store.now()))
		})
		b.pass(8 * time.Second)
		first := slices.IndexFunc(b.store.settles, func(s message.Settlement) bool { return s.Claim.Token.Number == 2 })
		require.NotEqual(t, -1, first)
		assert.Equal(t, message.VerbRelease, b.store.settles[first].Verdicts[0].Verb)
		assert.Len(t, b.sink.calls(), 1, "by the next claim")
		assert.Equal(t, []string{"m"}, b.store.acked)
	})
}

func TestRenewalsExtendTheDeadlinesOfLiveClaims(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := setup(t, func(c *Config, b *bench) {
			c.Claims.Batch, c.Claims.InFlight, c.Claims.Timeout = 1, 5, 12*time.Second
			b.sink.latency = 3900 * time.Millisecond
			for _, id := range []string{"1", "2", "3", "4", "5"} {
				b.store.add(keyed(id, "k", b.store.now()))
			}
		})
		b.pass(20 * time.Second)
		assert.Equal(t, []string{"1", "2", "3", "4", "5"}, b.store.acked)
		assert.Len(t, b.store.settles, 5, "the last waited for longer than a claim lasts, and was not released")
	})
}

func TestAPanicOfTheStoreIsAnError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		panics := 0
		b := setup(t, func(_ *Config, b *bench) {
			b.store.beforeClaim = func(message.ClaimRequest) error {
				if panics++; panics < 3 {
					panic("claim")
				}
				return nil
			}
			b.store.beforeSettle = func(message.Settlement) error {
				if panics++; panics < 6 {
					panic("settle")
				}
				return nil
			}
			b.store.add(due("m", b.store.now()))
		})
		b.pass(5 * time.Second)
		assert.Equal(t, []string{"m"}, b.store.acked)
	})
}

// TestNoClaimFindsNothing: the answer of a claim that was full tells when the next is due.
func TestNoClaimFindsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const batch, rounds = 10, 5
		b := setup(t, func(c *Config, b *bench) {
			c.Claims.Batch = batch
			for i := range batch * rounds {
				b.store.add(due(fmt.Sprint(i), b.store.now().Add(time.Duration(i/batch)*time.Second)))
			}
		})
		b.pass(rounds * time.Second)
		assert.Len(t, b.store.acked, batch*rounds)
		takes := b.store.takes()
		assert.Len(t, takes, rounds)
		for _, r := range takes {
			assert.Equal(t, batch, r.taken)
		}
	})
}
