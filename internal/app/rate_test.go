package app

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestRateOfFewShards has all that is due in one of 32 shards: because what is left of an
// earlier layout keeps the others alive, or because all is of one Key. The rate is reached
// all the same, and not exceeded, also over two instances; a 32nd of it would take two minutes.
// What a topic's rate holds back is parked.
func TestRateOfFewShards(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ instances, shards, key string }{
		"fewer shards": {"a", "1", ""},
		"one key":      {"ab", "", "k"},
	} {
		for of, more := range map[string]func(topic string) string{
			"queue": func(string) string { return ", rate: {messages: 640}" },
			"topic": func(topic string) string { return ", rate: {topics: [" + topic + "=640]}" },
		} {
			t.Run(name+" of a "+of, func(t *testing.T) {
				t.Parallel()
				f := newFleet(t, testenv.Redis(t), 32)
				f.more = more(f.topic)
				names := strings.Split(c.instances, "")
				for _, name := range names {
					f.join(name, f.redis)
				}
				f.held(names...)
				if c.shards != "" {
					left := make([]delay.Request, 64)
					for i := range left {
						left[i] = delay.Request{Message: delay.Message{Topic: f.topic}, When: delay.After(time.Hour)}
					}
					_, err := f.client.ScheduleBatch(t.Context(), left)
					require.NoError(t, err)
					_, err = f.queue.Layouts().SetShards(t.Context(), 1)
					require.NoError(t, err)
				}
				var parked int64
				f.meanwhile = map[int]func(){}
				for n := 200; n < 2400; n += 200 { // At one instant all of the slot may be in a claim.
					f.meanwhile[n] = func() { parked = max(parked, f.sums().Parked) }
				}
				f.keepsRate(640, 2400, c.key, 0.2)
				require.Equal(t, of == "topic", parked > 0)
			})
		}
	}
}

// TestRateThroughTakeovers: while instances come, fall silent, come back and leave, and Redis loses
// what it knows of the rate, it is never exceeded, and the messages go on to come.
func TestRateThroughTakeovers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testenv.Redis(t), 8)
	f.more = ", rate: {messages: 300}"
	address, proxy := proxied(t, f.redis)
	f.join("a", f.redis)
	f.join("b", address)
	f.held("a", "b")
	f.meanwhile = map[int]func(){
		300:  func() { proxy.Blackhole(true) },
		1200: func() { proxy.Blackhole(false) },
		1800: func() { f.join("c", f.redis) },
		2100: func() { assert.NoError(t, f.rdb.Del(t.Context(), f.queue.Keys().Rates()).Err()) },
		2400: func() { f.leave("a") },
		3000: func() { f.join("a", f.redis) },
	}
	f.keepsRate(300, 3600, "", 1) // Claims of the one that falls silent take long.
}

// keepsRate has messages due at once. They come within a minute, and never faster than the
// rate. inHand is how many seconds' worth the instances may have in hand together, as docs/operations.md says: a
// fifth, and up to one where claims take long.
func (f *fleet) keepsRate(rate, due int, key string, inHand float64) {
	f.t.Helper()
	requests := make([]delay.Request, due)
	for i := range requests {
		requests[i] = delay.Request{Message: delay.Message{Topic: f.topic, Key: key}, When: delay.After(0)}
	}
	began := time.Now()
	_, err := f.client.ScheduleBatch(f.t.Context(), requests)
	require.NoError(f.t, err)
	ctx, cancel := context.WithTimeout(f.t.Context(), time.Minute)
	defer cancel()
	for n := range due {
		if do := f.meanwhile[n]; do != nil {
			do()
		}
		_, err := f.got.NextMsgWithContext(ctx)
		require.NoError(f.t, err, "after %d messages", n)
		// A second's worth may have been saved up before the first was due, and a message for each instance be in hand.
		if most := float64(rate) * (time.Since(began).Seconds() + 1 + inHand); float64(n) > most+20 {
			require.Fail(f.t, "faster than the rate", "%d within %s", n, time.Since(began))
		}
	}
	f.t.Logf("%d messages in %.2f s at %d a second", due, time.Since(began).Seconds(), rate)
}
