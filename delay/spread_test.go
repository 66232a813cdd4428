package delay_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// TestSpread moves a message by its identity, the same when it is scheduled, replaced and
// rescheduled.
func TestSpread(t *testing.T) {
	t.Parallel()
	w := newWorld(t, message.NATS)
	client, ref := w.client(t, delay.WithConflict(delay.Replace)), delay.Ref{ID: "order-42/timeout", Key: "order-42"}
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	want := at.Add(message.Spread(ref.Key, ref.ID, 10*time.Minute))
	require.True(t, want.After(at))
	for range 2 {
		result, err := client.Schedule(t.Context(), delay.Message{ID: ref.ID, Key: ref.Key, Topic: "t"}, delay.At(at).Spread(10*time.Minute))
		require.NoError(t, err)
		require.Equal(t, want.UTC(), result.DueAt.UTC())
	}
	require.NoError(t, client.Reschedule(t.Context(), ref, delay.At(at.Add(time.Hour)).Spread(10*time.Minute)))
	info, err := client.Get(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, want.Add(time.Hour).UTC(), info.DueAt.UTC())

	result, err := client.Schedule(t.Context(), delay.Message{Topic: "t"}, delay.After(-time.Hour).Spread(20*time.Hour))
	require.NoError(t, err)
	part := message.Spread("", result.Ref.ID, 20*time.Hour)
	require.WithinDuration(t, time.Now().Add(part), result.DueAt, time.Minute, "by the id that it got")
	require.Equal(t, delay.After(time.Hour), delay.After(time.Hour).Spread(0).For(ref))
}

// TestSpreadWithoutEnd: what is too far away is refused, also if the sum with the
// spread is more than a duration holds.
func TestSpreadWithoutEnd(t *testing.T) {
	t.Parallel()
	client := newWorld(t, message.NATS).client(t)
	for _, when := range []delay.When{
		delay.After(math.MaxInt64).Spread(time.Hour), delay.After(math.MaxInt64).Spread(math.MaxInt64), delay.After(math.MaxInt64 / 2).Spread(math.MaxInt64),
	} {
		_, err := client.Schedule(t.Context(), delay.Message{ID: "a", Topic: "t"}, when)
		require.ErrorIs(t, err, delay.ErrInvalid)
		require.ErrorContains(t, err, `due "after `)
	}
}
