package store_test

import (
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/clock"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
)

// TestCaller plays stories of calls that create messages, of which runs are lost before they
// have happened, after it, or happen late: whatever the caller does, each message is created
// once, and what it says of it at last is true from then on. Where Redis answers again in time,
// it says that all were created.
func TestCaller(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const timeout, trouble = 2 * time.Second, 5 // passes
		now := time.UnixMilli(1_700_000_000_000)
		lasts := time.Duration(rapid.IntRange(0, 30).Draw(t, "seconds")) * time.Second
		deadline := now.Add(lasts)
		layout := &store.Layout{Shards: 3, Epoch: "1-life", Earlier: []int{2}}
		c := store.NewCaller(rapid.IntRange(1, 8).Draw(t, "calls"), 3, now)
		created, late, answers := map[string]bool{}, map[string]time.Time{}, map[string]*store.Answer{}
		elapse := func(until time.Time) { // What was lost may happen now.
			for token, at := range late {
				if !at.After(until) {
					created[token] = true
					delete(late, token)
				}
			}
			now = until
		}
		for passes, more := 0, true; more && now.Before(deadline); passes++ {
			require.Less(t, passes, 1000, "it turns without end")
			maps.Copy(answers, c.Answers())
			runs := c.Plan(layout, now)
			for _, r := range runs {
				settled := now.Add(min(timeout, deadline.Sub(now)))
				fate := "answered"
				if passes < trouble {
					fate = rapid.SampledFrom([]string{fate, "answered in part", "not sent", "refused", "lost", "answer lost", "late"}).Draw(t, "fate")
				}
				switch fate {
				case "not sent":
					r.Fail(rediserr.ErrNotSent, settled)
				case "refused":
					r.Fail(redis.ErrPoolTimeout, settled)
				case "lost", "answer lost", "late":
					for _, token := range r.Tokens() {
						if !r.IsLast() || created[token] {
							continue
						}
						created[token] = fate == "answer lost"
						if fate == "late" {
							late[token] = now.Add(settled.Sub(now) * 9 / 10)
						}
					}
					r.Fail(errors.New("connection reset"), settled)
				default:
					left := map[string]bool{}
					for i, token := range r.Tokens() {
						left[token] = i > 0 && fate != "answered"
						if r.IsLast() && !left[token] {
							require.True(t, r.IsSecond() || !created[token] && late[token].IsZero(), "a first run after one that may have happened")
							require.Zero(t, late[token], "a run while an earlier one may happen")
							created[token] = true
						}
					}
					r.Answer(func(token string) bool { return left[token] })
				}
			}
			maps.Copy(answers, c.Answers())
			var pause time.Duration
			pause, more = c.Next(now)
			elapse(now.Add(pause + time.Millisecond))
		}
		if settled := c.Settled(); settled.After(now) {
			elapse(settled)
		}
		rest := c.Answers()
		c.GiveUp()
		for token := range rest {
			answers[token] = c.Answers()[token]
		}
		require.Empty(t, late, "what is answered, and may happen yet")
		for token, answer := range answers {
			require.NotNil(t, answer, "a call without an answer")
			switch {
			case answer.Err == nil:
				require.True(t, created[token])
			case lasts >= (trouble+2)*timeout:
				t.Fatalf("Redis answers again, and yet: %v", answer.Err)
			case errors.Is(answer.Err, store.ErrUnavailable):
				require.False(t, created[token], "%v", answer.Err)
			default:
				require.ErrorIs(t, answer.Err, store.ErrUnknown)
			}
		}
	})
}

// TestStartByALateClock has Redis' clock be known only when the first run of a call was lost: the
// call began before it all the same. Else a further run would take what came meanwhile for
// what was there before. It checks I11.
func TestStartByALateClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		layout, began := &store.Layout{Shards: 1, Epoch: "1-life"}, time.Now()
		c := store.NewCaller(1, 1, began)
		var server clock.Clock
		c.PlanBy(layout, &server, time.Now())[0].Fail(errors.New("connection reset"), time.Now().Add(2*time.Second))
		pause, _ := c.Next(time.Now())
		time.Sleep(pause) //nolint:forbidigo // the bubble's clock
		server.Observe(time.Now().UnixMilli(), time.Now())
		again := c.PlanBy(layout, &server, time.Now())[0]
		require.True(t, again.IsSecond())
		require.LessOrEqual(t, again.StartMs(&server), began.UnixMilli())
	})
}
