package delaytest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/delaytest"
)

// TestCancelAll: all of a tag, or of a Key, are cancelled in memory as they are in a real Redis.
func TestCancelAll(t *testing.T) {
	t.Parallel()
	for name, filter := range map[string]delay.Filter{"tag": {Tag: "customer-7"}, "key": {Key: "k*"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := delaytest.New(t, "orders")
			for _, m := range []delay.Message{
				{ID: "a", Key: "k*", Tags: []string{"customer-7"}}, {ID: "b", Key: "k*", Tags: []string{"customer-7"}}, {ID: "c", Key: "kk", Tags: []string{"customer-77"}},
			} {
				m.Topic = "mail"
				_, err := q.Schedule(t.Context(), m, delay.After(time.Hour))
				require.NoError(t, err)
			}
			n, err := q.CancelAll(t.Context(), filter)
			require.NoError(t, err)
			require.Equal(t, delay.CancelCount{Done: 2}, n)
			q.Advance(2 * time.Hour)
			require.Equal(t, "c", q.RequirePublished("mail").ID)
			q.RequireNotScheduled("mail")
		})
	}
}
