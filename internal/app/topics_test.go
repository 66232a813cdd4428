package app

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestTopics: what waits of a topic that the queue takes no more goes to the dead letters
// when it is due, and is published when it is redriven after the topic was allowed again.
func TestTopics(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testenv.Redis(t), 2)
	f.join("a", f.redis)
	f.held("a")
	ref := delay.Ref{ID: "waits"}
	_, err := f.client.Schedule(t.Context(), delay.Message{ID: ref.ID, Topic: f.topic}, delay.After(time.Hour))
	require.NoError(t, err)
	f.leave("a")

	f.more = ", topics: [other]"
	f.join("b", f.redis)
	f.held("b")
	require.Eventually(t, func() bool {
		_, err = f.client.Schedule(t.Context(), delay.Message{Topic: f.topic}, delay.After(time.Hour))
		return err != nil
	}, time.Minute, 10*time.Millisecond, "the client reads the layout every ten seconds")
	require.ErrorIs(t, err, delay.ErrInvalid)
	assert.Contains(t, err.Error(), "the queue takes only other")
	require.NoError(t, f.client.PublishNow(t.Context(), ref))
	require.Eventually(t, func() bool { return f.sums().Dead == 1 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, inspect.NewAdmin(f.queue).DeadLetters(t.Context(), func(letter message.DeadLetter) bool {
		assert.Equal(t, ref.ID, letter.ID)
		assert.True(t, strings.HasPrefix(letter.Reason, "not allowed: topic "), letter.Reason)
		return true
	}))
	f.leave("b")

	f.more = ", topics: [oth*, " + f.topic[:4] + "*]"
	f.join("c", f.redis)
	f.held("c")
	require.NoError(t, f.client.PublishNow(t.Context(), ref))
	require.Eventually(t, func() bool { return f.sums().Counters["published"] == 1 }, time.Minute, 10*time.Millisecond)
}
