package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/test/flow"
)

// TestJobOfKilledBridges kills the bridges in the middle of a job, twice. Later ones go on
// with it: it cancels all that match and nothing else, and counts each message once.
func TestJobOfKilledBridges(t *testing.T) {
	t.Parallel()
	const tagged, others = 4000, 200
	w := newWorld(t, "nats")
	second, err := w.SecondBridge()
	require.NoError(t, err)
	require.NoError(t, second.Start(t.Context()))
	defer func() { assert.NoError(t, second.Stop()) }()
	scheduleMany(t, w, "sale", tagged, []string{"sale"})
	scheduleMany(t, w, "other", others, nil)

	jobs := job.New(w.Store())
	id, err := jobs.Start(t.Context(), job.Spec{Verb: job.Cancel, Filter: inspect.Filter{Tag: "sale"}, Rate: 500})
	require.NoError(t, err)
	var found job.Job
	await := func(what string, is func() bool) {
		require.Eventually(t, func() bool {
			found, err = jobs.Get(t.Context(), id)
			return err == nil && is()
		}, 3*time.Minute, 10*time.Millisecond, what)
	}
	for _, part := range []int64{tagged / 4, tagged / 2} {
		await("a bridge is in the middle of it", func() bool { return found.State == job.Running && found.Tally.Done >= part })
		require.NoError(t, w.Bridge.Kill())
		require.NoError(t, second.Kill())
		require.NoError(t, w.Bridge.Start(t.Context()))
		require.NoError(t, second.Start(t.Context()))
	}
	await("it ends", func() bool { return found.State.Ended() })
	assert.Equal(t, job.Done, found.State, found.Err)
	assert.Equal(t, job.Tally{Matched: tagged, Done: tagged}, found.Tally)
	totals, err := w.Totals(t.Context())
	require.NoError(t, err)
	assert.Equal(t, int64(others), totals.Waiting)
	assert.Equal(t, int64(tagged), totals.Counters["cancelled"])
}

// scheduleMany schedules messages that are due in an hour.
func scheduleMany(t *testing.T, w *flow.World, prefix string, count int, tags []string) {
	t.Helper()
	requests := make([]delay.Request, count)
	for i := range requests {
		requests[i] = delay.Request{Message: delay.Message{ID: fmt.Sprintf("%s-%d", prefix, i), Topic: w.Topic, Tags: tags}, When: delay.After(time.Hour)}
	}
	results, err := w.Client.ScheduleBatch(t.Context(), requests)
	require.NoError(t, err)
	for _, result := range results {
		require.NoError(t, result.Err)
	}
}
