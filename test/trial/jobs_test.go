package trial_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/test/trial"
)

// TestJobOfKilledBridges kills the bridges in the middle of a job, twice. Later ones go on
// with it: it cancels all that match and nothing else, and counts each message once.
func TestJobOfKilledBridges(t *testing.T) {
	t.Parallel()
	const tagged, others = 4000, 200
	w := newWorld(t, trial.Options{Redis: persistent()})
	second := startBridges(t, w, 1)[1]
	defer func() { assert.NoError(t, second.Stop()) }()
	scheduleMany(t, w, "sale", tagged, time.Hour, "sale")
	scheduleMany(t, w, "other", others, time.Hour)

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

// TestJobInAnOutage cancels everything in an outage: the queue is paused, and what was in
// flight comes back while the job goes on, behind where it is. It meets that, too.
func TestJobInAnOutage(t *testing.T) {
	t.Parallel()
	for name, strike := range map[string]func(w *trial.World) error{
		"a holder dies":   func(w *trial.World) error { return w.Bridge.Kill() },
		"the broker dies": func(w *trial.World) error { return w.Broker.Server().Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, trial.Options{Redis: persistent()})
			second := startBridges(t, w, 1)[1]
			defer func() { assert.NoError(t, second.Stop()) }()
			require.NoError(t, w.Broker.Server().Pause())
			const due, others = 500, 1000
			scheduleMany(t, w, "due", due, 0)
			require.Eventually(t, func() bool {
				totals, err := w.Totals(t.Context())
				return err == nil && totals.InFlight > 0
			}, time.Minute, 10*time.Millisecond)
			_, err := inspect.NewAdmin(w.Store()).Pause(t.Context(), "", "test")
			require.NoError(t, err)
			scheduleMany(t, w, "other", others, time.Hour)
			id, err := job.New(w.Store()).Start(t.Context(), job.Spec{Verb: job.Cancel, Filter: inspect.Filter{Topic: w.Topic}, Rate: 100})
			require.NoError(t, err)
			var found job.Job
			await := func(is func() bool) {
				require.Eventually(t, func() bool {
					found, err = job.New(w.Store()).Get(t.Context(), id)
					return err == nil && is()
				}, 5*time.Minute, 10*time.Millisecond)
			}
			await(func() bool { return found.State == job.Running && found.Tally.Done > 0 })
			totals, err := w.Totals(t.Context())
			require.NoError(t, err)
			t.Logf("%d in flight, %d wait", totals.InFlight, totals.Waiting)
			require.NoError(t, strike(w))
			await(func() bool { return found.State.Ended() })
			assert.Equal(t, job.Done, found.State, found.Err)
			if totals, err = w.Totals(t.Context()); assert.NoError(t, err) {
				assert.Zero(t, totals.Waiting+totals.InFlight+totals.Dead, "left behind a job that says %+v", found.Tally)
			}
			if assert.NotNil(t, found.Remaining) {
				assert.Zero(t, *found.Remaining)
			}
			assert.Equal(t, int64(due+others), found.Tally.Done+found.Tally.MaybePublished, "%+v", found.Tally)
		})
	}
}

// scheduleMany schedules messages that are due after a while.
func scheduleMany(t *testing.T, w *trial.World, prefix string, count int, after time.Duration, tags ...string) {
	t.Helper()
	requests := make([]delay.Request, count)
	for i := range requests {
		requests[i] = delay.Request{Message: delay.Message{ID: fmt.Sprintf("%s-%d", prefix, i), Topic: w.Topic, Tags: tags}, When: delay.After(after)}
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) { // A busy machine may not have the time for all in one call.
		results, err := w.Client.ScheduleBatch(t.Context(), requests)
		require.NoError(c, err)
		for _, result := range results {
			require.True(c, result.Err == nil || errors.Is(result.Err, delay.ErrDuplicate), result.Err)
		}
	}, time.Minute, 10*time.Millisecond)
}
