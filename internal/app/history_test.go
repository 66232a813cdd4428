package app

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestHistory: with a history, the SDK tells what became of a message and where the
// broker has it.
func TestHistory(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testenv.Redis(t), 2)
	f.more = ", history: {count: 100}"
	f.join("a", f.redis)
	f.held("a")
	schedule := func(id string, when delay.When) delay.Ref {
		result, err := f.client.Schedule(t.Context(), delay.Message{ID: id, Key: "k", Topic: f.topic}, when)
		require.NoError(t, err)
		return result.Ref
	}
	published, cancelled := schedule("published", delay.After(0)), schedule("cancelled", delay.After(time.Hour))
	require.NoError(t, f.client.Cancel(t.Context(), cancelled))
	info, err := f.client.Get(t.Context(), cancelled)
	require.NoError(t, err)
	assert.Equal(t, delay.Cancelled, info.State)
	assert.Equal(t, f.topic, info.Topic)
	assert.WithinDuration(t, time.Now(), info.End.At, time.Minute)

	require.Eventually(t, func() bool {
		info, err = f.client.Get(t.Context(), published)
		require.NoError(t, err)
		return info.State == delay.Published
	}, time.Minute, 10*time.Millisecond)
	assert.Equal(t, "stream "+f.topic+" sequence 1", info.End.Place)
	assert.Equal(t, 1, info.Attempt)

	schedule("published", delay.After(time.Hour))
	info, err = f.client.Get(t.Context(), published)
	require.NoError(t, err)
	assert.Equal(t, delay.Scheduled, info.State)
	assert.Equal(t, delay.Published, info.End.State, "what became of the one before")
	_, err = f.client.Get(t.Context(), delay.Ref{ID: "never"})
	require.ErrorIs(t, err, delay.ErrNotFound)
}
