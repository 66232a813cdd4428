package delaytest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/delay/delaytest"
)

// seen reads the headers of what was published, as a consumer does.
func seen(t *testing.T, p delaytest.Published) delay.Delivery {
	t.Helper()
	d, err := delay.ReadHeaders(func(name string) string { return p.Headers[name] })
	require.NoError(t, err)
	return d
}

// TestUID: an id that is used again is another message, and a consumer can tell; an attempt,
// a reschedule and a second look at it change nothing.
func TestUID(t *testing.T) {
	t.Parallel()
	q := delaytest.New(t, "orders")
	m := delay.Message{ID: "reminder", Topic: "t", Tags: []string{"b", "a"}}
	uids := map[string]bool{}
	for range 3 {
		res, err := q.Schedule(t.Context(), m, delay.After(time.Hour))
		require.NoError(t, err)
		before, err := q.Get(t.Context(), res.Ref)
		require.NoError(t, err)
		require.NoError(t, q.Reschedule(t.Context(), res.Ref, delay.After(time.Minute)))
		require.NoError(t, q.PublishNow(t.Context(), res.Ref))
		info, err := q.Get(t.Context(), res.Ref)
		require.NoError(t, err)
		require.Equal(t, before.UID, info.UID)
		require.Empty(t, info.Headers, "it is none of the producer's")
		published := q.Advance(0)
		require.Len(t, published, 1)
		d := seen(t, published[0])
		require.Equal(t, before.UID, d.UID)
		require.Equal(t, delay.Delivery{
			UID: d.UID, ID: "reminder", Queue: "orders", DueAt: info.DueAt.UTC(), ScheduledAt: info.ScheduledAt.UTC(), Attempt: 1, Tags: []string{"a", "b"},
		}, d)
		uids[d.UID] = true
	}
	require.Len(t, uids, 3)
}
