package app

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestRates has more due than the rates of a queue and of a topic let through, over two
// instances. It prints what came; that it is not more than that, slow as the machine may
// be, is asserted.
func TestRates(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]func(topic string) string{
		"queue": func(string) string { return ", rate: {messages: 200}" },
		"topic": func(topic string) string { return ", rate: {topics: [" + topic + "=200]}" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, testenv.Redis(t), 4)
			f.more = more(f.topic)
			f.join("a", f.redis)
			f.join("b", f.redis)
			f.held(20*time.Second, "a", "b")
			requests := make([]delay.Request, 3000)
			for i := range requests {
				requests[i] = delay.Request{Message: delay.Message{Topic: f.topic}, When: delay.After(0)}
			}
			began := time.Now()
			_, err := f.client.ScheduleBatch(t.Context(), requests)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for n := range 1000 {
				_, err := f.got.NextMsgWithContext(ctx)
				require.NoError(t, err)
				// A second's worth may have been saved up before the first was due.
				if most := 200*time.Since(began).Seconds() + 200; float64(n) > most+20 {
					require.Fail(t, "faster than the rate", "%d within %s", n, time.Since(began))
				}
			}
			t.Logf("%s: 1000 messages in %.2f s at 200 a second", name, time.Since(began).Seconds())
			if name == "topic" {
				assert.Positive(t, f.sums().Parked)
			}
		})
	}
}
