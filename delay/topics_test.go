package delay_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestTopicsOfTheQueue: a message of a topic that the queue does not take is invalid, and
// the error names the limit; others of its batch are scheduled.
func TestTopicsOfTheQueue(t *testing.T) {
	t.Parallel()
	rdb := storetest.Connect(t, testenv.Redis(t))
	queue := storetest.New(t, rdb, 2)
	storetest.SetRules(t, queue, layout.Rules{Topics: message.Topics{"orders.*"}})
	client, err := delay.NewClient(rdb, queue.Name())
	require.NoError(t, err)
	results, err := client.ScheduleBatch(t.Context(), []delay.Request{
		{Message: delay.Message{Topic: "orders.eu"}, When: delay.After(time.Hour)},
		{Message: delay.Message{Topic: "reminder"}, When: delay.After(time.Hour)},
	})
	require.NoError(t, err)
	require.NoError(t, results[0].Err)
	require.ErrorIs(t, results[1].Err, delay.ErrInvalid)
	require.EqualError(t, results[1].Err, `delay: invalid: topic "reminder": the queue takes only orders.*`)
}
