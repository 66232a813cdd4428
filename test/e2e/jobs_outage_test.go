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

// TestJobInAnOutage cancels everything in an outage: the queue is paused, and what was in
// flight comes back while the job goes on, behind where it is. It meets that, too.
func TestJobInAnOutage(t *testing.T) {
	t.Parallel()
	for name, strike := range map[string]func(w *flow.World) error{
		"a holder dies":   func(w *flow.World) error { return w.Bridge.Kill() },
		"the broker dies": func(w *flow.World) error { return w.Broker.Server().Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, "nats")
			second, err := w.SecondBridge()
			require.NoError(t, err)
			require.NoError(t, second.Start(t.Context()))
			defer func() { assert.NoError(t, second.Stop()) }()
			require.NoError(t, w.Broker.Server().Pause())
			const due, others = 500, 1000
			scheduleDue(t, w, due)
			require.Eventually(t, func() bool {
				totals, err := w.Totals(t.Context())
				return err == nil && totals.InFlight > 0
			}, time.Minute, 10*time.Millisecond)
			_, err = inspect.NewAdmin(w.Store()).Pause(t.Context(), "", "test")
			require.NoError(t, err)
			scheduleMany(t, w, "other", others, nil)
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

// scheduleDue schedules messages that are due.
func scheduleDue(t *testing.T, w *flow.World, count int) {
	t.Helper()
	requests := make([]delay.Request, count)
	for i := range requests {
		requests[i] = delay.Request{Message: delay.Message{ID: fmt.Sprintf("due-%d", i), Topic: w.Topic}, When: delay.After(0)}
	}
	results, err := w.Client.ScheduleBatch(t.Context(), requests)
	require.NoError(t, err)
	for _, result := range results {
		require.NoError(t, result.Err)
	}
}
