package app

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestLateAtRestart finds messages that were due two hours ago and half an hour ago, and
// does with the former what the queue says.
func TestLateAtRestart(t *testing.T) {
	t.Parallel()
	for then, want := range map[string]map[string]int64{
		"publish": {"published": 40},
		"dead":    {"published": 20, "dead_lettered": 20},
		"drop":    {"published": 20, "dropped": 20},
	} {
		t.Run(then, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, testenv.Redis(t), 4)
			f.more = ", late: {after: 1h, then: " + then + "}"
			f.join("a", f.redis)
			f.held("a")
			f.leave("a")
			for i := range 40 {
				ago := []time.Duration{2 * time.Hour, 30 * time.Minute}[i%2]
				m := delay.Message{ID: fmt.Sprint("m", i), Key: fmt.Sprint("k", i%3), Topic: f.topic}
				_, err := f.client.Schedule(t.Context(), m, delay.At(time.Now().Add(-ago)))
				require.NoError(t, err)
			}
			f.join("b", f.redis)
			require.Eventually(t, func() bool { sum := f.sums(); return sum.Waiting+sum.InFlight == 0 }, time.Minute, 10*time.Millisecond)
			counters := f.sums().Counters
			for _, name := range []string{"published", "dead_lettered", "dropped"} {
				assert.Equal(t, want[name], counters[name], name)
			}
			if want["dropped"] > 0 {
				require.Eventually(t, func() bool { return len(f.logs["b"].of("messages dropped")) > 0 }, time.Minute, 10*time.Millisecond)
			}
			require.NoError(t, inspect.NewAdmin(f.queue).DeadLetters(t.Context(), func(letter message.DeadLetter) bool {
				assert.Equal(t, "late: more than 1h", letter.Reason)
				return true
			}))
		})
	}
}
