package jobs_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/jobs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a queue of many messages and the runners of its jobs.
type world struct {
	q *store.Queue
}

func newWorld(t *testing.T, messages int) *world {
	t.Helper()
	options, err := redis.ParseURL(testenv.Redis(t))
	require.NoError(t, err)
	rdb := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	w := &world{q: storetest.New(t, rdb, 4)}
	w.schedule(t, messages, time.Hour)
	return w
}

// schedule makes messages m-0000, m-0001 and so on.
func (w *world) schedule(t *testing.T, messages int, in time.Duration) {
	t.Helper()
	requests := make([]store.Request, messages)
	for i := range requests {
		requests[i] = store.Request{
			Message: &message.Message{ID: fmt.Sprintf("m-%04d", i), Topic: "t"}, When: store.When{Relative: true, Ms: in.Milliseconds()},
		}
	}
	for chunk := range slices.Chunk(requests, store.MaxBatch) {
		for _, a := range w.q.Producer().Schedule(t.Context(), chunk, false, store.Durability{}) {
			require.NoError(t, a.Err)
		}
	}
}

// bury claims all that is due, and makes dead letters of it.
func (w *world) bury(t *testing.T) {
	t.Helper()
	for shard := range 4 {
		for number := uint64(1); ; number++ {
			claim, err := w.q.Shard(shard).Claim(t.Context(), message.ClaimRequest{
				Token: message.ClaimToken{Instance: "bridge/boot", Number: number}, Max: store.MaxBatch, Timeout: time.Hour, Lease: time.Hour,
			})
			require.NoError(t, err)
			if len(claim.Messages) == 0 {
				break
			}
			settlement := message.Settlement{Claim: claim}
			for range claim.Messages {
				settlement.Verdicts = append(settlement.Verdicts, message.Verdict{Verb: message.VerbDeadLetter, Reason: "refused"})
			}
			_, err = w.q.Shard(shard).Settle(t.Context(), settlement)
			require.NoError(t, err)
		}
	}
}

// list is all messages of a state, in its order.
func (w *world) list(t *testing.T, state inspect.State) (all []inspect.ListItem) {
	t.Helper()
	for request := (inspect.ListRequest{Filter: inspect.Filter{State: state}, Limit: inspect.MaxList}); ; {
		page, err := inspect.NewAdmin(w.q).List(t.Context(), request)
		require.NoError(t, err)
		all = append(all, page.Messages...)
		if request.After = page.Next; page.Next == "" {
			return all
		}
	}
}

// run begins a runner, which ends with the test at the latest.
func (w *world) run(t *testing.T, instance string) (stop context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	runner := jobs.New(job.New(w.q), instance, slog.New(slog.DiscardHandler))
	ended := make(chan struct{})
	go func() { defer close(ended); runner.Run(ctx) }()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	return stop
}

func (w *world) start(t *testing.T, spec job.Spec) string {
	t.Helper()
	id, err := job.New(w.q).Start(t.Context(), spec)
	require.NoError(t, err)
	return id
}

// await waits until the job is as wanted.
func (w *world) await(t *testing.T, id string, is func(job.Job) bool) (found job.Job) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		found, err = job.New(w.q).Get(t.Context(), id)
		require.NoError(t, err)
		return is(found)
	}, 2*time.Minute, 10*time.Millisecond)
	return found
}

func ended(found job.Job) bool { return found.State.Ended() }

// TestHandOver: an instance that stops in the middle gives its job to another, which finishes it.
func TestHandOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 400)
	id := w.start(t, job.Spec{Verb: job.Cancel, Filter: inspect.Filter{IDPrefix: "m-"}, Rate: 200})
	stop := w.run(t, "a")
	w.await(t, id, func(found job.Job) bool { return found.Tally.Done > 0 })
	stop()
	found, err := job.New(w.q).Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, job.Waiting, found.State)
	require.Less(t, found.Tally.Done, int64(400))
	w.run(t, "b")
	w.run(t, "c")
	found = w.await(t, id, ended)
	require.Equal(t, job.Done, found.State)
	require.Equal(t, job.Tally{Matched: 400, Done: 400}, found.Tally)
	require.NotEqual(t, "a", found.Instance)
	page, err := inspect.NewAdmin(w.q).List(t.Context(), inspect.ListRequest{Limit: 1})
	require.NoError(t, err)
	require.Empty(t, page.Messages)
}

// TestTwoInstances share the jobs: each job is run once.
func TestTwoInstances(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 500)
	w.run(t, "a")
	w.run(t, "b")
	var ids []string
	for i := range 5 {
		ids = append(ids, w.start(t, job.Spec{
			Verb: job.Reschedule, Filter: inspect.Filter{IDPrefix: fmt.Sprintf("m-0%d", i)}, By: time.Hour,
		}))
	}
	for _, id := range ids {
		require.Equal(t, job.Tally{Matched: 100, Done: 100}, w.await(t, id, ended).Tally)
	}
	list, err := inspect.NewAdmin(w.q).List(t.Context(), inspect.ListRequest{Limit: inspect.MaxList})
	require.NoError(t, err)
	for _, m := range list.Messages {
		require.WithinDuration(t, time.Now().Add(2*time.Hour), m.Found.DueAt, 10*time.Minute, m.Found.ID)
	}
}

// later is a job that moves messages of the filter by an hour.
func later(filter inspect.Filter, rate int) job.Spec {
	return job.Spec{Verb: job.Reschedule, Filter: filter, By: time.Hour, Rate: rate}
}

// TestReschedulesInTurn: two jobs that move the same messages move each of them once, one after the other, and end.
func TestReschedulesInTurn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 100)
	due := map[string]time.Time{}
	for _, m := range w.list(t, inspect.StateScheduled) {
		due[m.Found.ID] = m.Found.DueAt
	}
	ids := []string{w.start(t, later(inspect.Filter{Topic: "t"}, 60)), w.start(t, later(inspect.Filter{IDPrefix: "m-00"}, 60))}
	w.run(t, "a")
	w.run(t, "b")
	for _, id := range ids {
		require.Equal(t, job.Tally{Matched: 100, Done: 100}, w.await(t, id, ended).Tally)
	}
	for _, m := range w.list(t, inspect.StateScheduled) {
		require.Equal(t, due[m.Found.ID].Add(2*time.Hour), m.Found.DueAt, m.Found.ID)
	}
}

// TestOthersDoNotWait for a reschedule: those of other messages, those that change nothing, and who is told to stop.
func TestOthersDoNotWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 400)
	first := w.start(t, later(inspect.Filter{Topic: "t"}, 1))
	waits := w.start(t, later(inspect.Filter{Topic: "t", State: inspect.StateScheduled}, 0))
	counts, stopped := later(inspect.Filter{Topic: "t"}, 0), w.start(t, later(inspect.Filter{Topic: "t"}, 0))
	counts.DryRun = true
	others := []string{stopped, w.start(t, counts), w.start(t, later(inspect.Filter{Topic: "other"}, 0))}
	require.NoError(t, job.New(w.q).Stop(t.Context(), stopped))
	w.run(t, "a")
	w.run(t, "b")
	for _, id := range others {
		w.await(t, id, ended)
	}
	for _, id := range []string{first, waits} {
		require.False(t, w.await(t, id, func(job.Job) bool { return true }).State.Ended(), "400 messages at one a second, and what waits for that")
	}
	require.NoError(t, job.New(w.q).Stop(t.Context(), first))
	require.Equal(t, int64(400), w.await(t, waits, ended).Tally.Done)
}

// TestRate: a job is no faster than it may be.
func TestRate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 60)
	id := w.start(t, job.Spec{Verb: job.Cancel, Filter: inspect.Filter{IDPrefix: "m-"}, Rate: 30})
	began := time.Now()
	w.run(t, "a") // It looks at once.
	require.Equal(t, int64(60), w.await(t, id, ended).Tally.Done)
	require.GreaterOrEqual(t, time.Since(began), 1900*time.Millisecond, "60 messages at 30 a second")
}

// TestRedriveOfMany: 10,000 dead letters at 500 a second, all of them, the first that died first.
func TestRedriveOfMany(t *testing.T) {
	t.Parallel()
	const many = 10_000
	w := newWorld(t, 0)
	w.schedule(t, many, 0)
	w.bury(t)
	dead := w.list(t, inspect.StateDead)
	require.Len(t, dead, many)
	id := w.start(t, job.Spec{Verb: job.Redrive, Filter: inspect.Filter{Reason: "refused"}, Rate: 500})
	w.run(t, "a")
	found := w.await(t, id, ended)
	require.Equal(t, job.Tally{Matched: many, Done: many}, found.Tally)
	due := map[string]time.Time{}
	for _, m := range w.list(t, inspect.StateScheduled) {
		due[m.Found.ID] = m.Found.DueAt
	}
	require.Len(t, due, many)
	const step = 200 // messages that are put back together, in any order
	var before time.Time
	for i := step; i < many; i++ {
		if at := due[dead[i-step].Found.ID]; at.After(before) {
			before = at
		}
		require.False(t, due[dead[i].Found.ID].Before(before), "%s came before what had died before it", dead[i].Found.ID)
	}
}

// TestStop: a job that nobody runs any more stops when somebody does.
func TestStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 50)
	id := w.start(t, job.Spec{Verb: job.Cancel, Filter: inspect.Filter{IDPrefix: "m-"}})
	require.NoError(t, job.New(w.q).Stop(t.Context(), id))
	w.run(t, "a")
	found := w.await(t, id, ended)
	require.Equal(t, job.Stopped, found.State)
	require.Zero(t, found.Tally)
}
