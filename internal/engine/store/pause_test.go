package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestPause is heard by heartbeats, keeps its beginning, and ends once.
func TestPause(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 2)
	heard := func() map[string]time.Time {
		_, paused, err := q.Members().Heartbeat(t.Context(), "a/1", time.Minute)
		require.NoError(t, err)
		told, err := q.Admin().Paused(t.Context())
		require.NoError(t, err)
		require.Equal(t, told, paused)
		return paused
	}
	require.Empty(t, heard())
	queue, err := q.Admin().Pause(t.Context(), "")
	require.NoError(t, err)
	topic, err := q.Admin().Pause(t.Context(), "orders.eu")
	require.NoError(t, err)
	again, err := q.Admin().Pause(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, queue, again)
	require.WithinDuration(t, time.Now(), queue, time.Minute)
	require.Equal(t, map[string]time.Time{"": queue, "orders.eu": topic}, heard())

	was, err := q.Admin().Resume(t.Context(), "")
	require.NoError(t, err)
	require.Equal(t, queue, was)
	was, err = q.Admin().Resume(t.Context(), "")
	require.NoError(t, err)
	require.Zero(t, was, "it was not paused")
	require.Equal(t, map[string]time.Time{"orders.eu": topic}, heard())

	_, err = q.Admin().Pause(t.Context(), "no\x00topic")
	var invalid *message.InvalidError
	require.ErrorAs(t, err, &invalid)
}

// TestPausesAreBounded, and a pause that is there is none too many.
func TestPausesAreBounded(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 1)
	for i := range 256 {
		_, err := q.Admin().Pause(t.Context(), fmt.Sprint("t", i))
		require.NoError(t, err)
	}
	_, err := q.Admin().Pause(t.Context(), "one more")
	require.ErrorIs(t, err, store.ErrManyPaused)
	_, err = q.Admin().Pause(t.Context(), "t7")
	require.NoError(t, err)
}
