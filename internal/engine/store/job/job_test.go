package job_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/hints"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// startJob starts a job and takes it.
func startJob(t testing.TB, q *store.Queue, spec job.Spec) *job.Run {
	t.Helper()
	id, err := job.New(q).Start(t.Context(), spec)
	require.NoError(t, err)
	run, err := job.New(q).Take(t.Context(), id, "a")
	require.NoError(t, err)
	return run
}

// finish makes steps until the job has ended; what is in flight after a look by name stays so.
func finish(t testing.TB, run *job.Run, most int) job.Job {
	t.Helper()
	for looked := false; ; looked = run.Waits() {
		var err error
		if looked && run.Waits() {
			err = run.Finish(t.Context())
		} else {
			_, err = run.Step(t.Context(), most)
		}
		require.NoError(t, err)
		if found := run.Job(); found.State.Ended() {
			return found
		}
	}
}

// die has the job's runner die now: another instance takes the job.
func die(t testing.TB, rdb *redis.Client, q *store.Queue, run *job.Run) *job.Run {
	t.Helper()
	id := run.Job().ID
	_, err := job.New(q).Take(t.Context(), id, "b")
	require.ErrorIs(t, err, job.ErrLost, "it is another's")
	require.NoError(t, rdb.HDel(t.Context(), q.Keys().Jobs(), id+" lease").Err())
	next, err := job.New(q).Take(t.Context(), id, "b")
	require.NoError(t, err)
	return next
}

// TestStartTellsBridges: a bridge looks for jobs now and then only, so who starts one says so.
func TestStartTellsBridges(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	told := make(chan struct{}, 100)
	bridge := hints.New(rdb)
	bridge.Set(q.Keys(), []int{}, hints.Listener{Changed: func() { told <- struct{}{} }})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { bridge.Run(ctx) })
	defer running.Wait()
	defer stop()
	for range 2 { // It listens, to changes of the instances and of the layout.
		<-told
	}
	_, err := job.New(q).Start(t.Context(), job.Spec{Verb: job.Cancel, Filter: inspect.Filter{Tag: "sale"}})
	require.NoError(t, err)
	<-told
}

// TestJobGoesOn: whenever runners die between what they do and its record, another one
// finishes the job, and its tally is what happened to each message.
func TestJobGoesOn(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 3)
	const count = 100
	for i := range count {
		storetest.Tag(t, q, storetest.Note(fmt.Sprintf("m-%03d", i), ""), storetest.Later(), "sale")
		storetest.Create(t, q, fmt.Sprintf("other-%03d", i), storetest.Later())
	}
	run := startJob(t, q, job.Spec{Verb: job.Cancel, Filter: inspect.Filter{Tag: "sale"}})
	for i := 0; ; i++ {
		_, err := run.Step(t.Context(), 7)
		require.NoError(t, err)
		if run.Job().State.Ended() {
			break
		}
		if i%3 == 1 {
			run = die(t, rdb, q, run)
		}
	}
	require.Equal(t, job.Done, run.Job().State)
	require.Equal(t, job.Tally{Matched: count, Done: count}, run.Job().Tally)
	list := storetest.ListAll(t, q, inspect.ListRequest{Limit: 100}, nil)
	require.Len(t, list, count)
	for _, m := range list {
		require.Contains(t, m.Found.ID, "other")
	}
	found, err := job.New(q).Get(t.Context(), run.Job().ID)
	require.NoError(t, err)
	require.Equal(t, run.Job().Tally, found.Tally)
	open, err := job.New(q).Open(t.Context())
	require.NoError(t, err)
	require.Empty(t, open)
}

// TestJobMovesOnce: a job that moves messages ahead of where it is meets none of them
// twice, those of rows neither, though runners die.
func TestJobMovesOnce(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 2)
	const count = 60
	base := time.Now().Add(storetest.Never).Truncate(time.Millisecond)
	due := func(i int) time.Time { return base.Add(time.Duration(i) * time.Second) }
	var rows []store.Row
	for i := range count {
		if i%3 == 0 {
			rows = append(rows, store.Row{Token: fmt.Sprintf("~%015d", i), DueAt: due(i), Message: storetest.Note(fmt.Sprintf("m-%02d", i), "")})
			continue
		}
		storetest.Create(t, q, fmt.Sprintf("m-%02d", i), storetest.At(due(i).UnixMilli()))
	}
	for _, a := range q.Rows().Put(t.Context(), rows) {
		storetest.Answered(t, store.Created, a)
	}
	for n, by := range []time.Duration{10 * time.Second, -5 * time.Second} {
		run := startJob(t, q, job.Spec{Verb: job.Reschedule, Filter: inspect.Filter{State: inspect.StateScheduled}, By: by})
		for i := 0; !run.Job().State.Ended(); i++ {
			_, err := run.Step(t.Context(), 4)
			require.NoError(t, err)
			if i%4 == 3 && !run.Job().State.Ended() {
				run = die(t, rdb, q, run)
			}
		}
		require.Equal(t, job.Tally{Matched: count, Done: count}, run.Job().Tally)
		for _, m := range storetest.ListAll(t, q, inspect.ListRequest{Limit: 100}, nil) {
			var i int
			_, err := fmt.Sscanf(m.Found.ID, "m-%d", &i)
			require.NoError(t, err)
			want := due(i).Add(10 * time.Second)
			if n == 1 {
				want = due(i).Add(5 * time.Second)
			}
			require.Equal(t, want.UnixMilli(), m.Found.DueAt.UnixMilli(), m.Found.ID)
		}
	}
}

// ofNotes are all messages that note makes.
var ofNotes = inspect.Filter{Topic: storetest.Note("", "").Topic}

// TestJobTally tells of each message in each state what became of it.
func TestJobTally(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	for name, c := range map[string]struct {
		spec job.Spec
		want job.Tally
		left int
	}{
		"cancel":        {job.Spec{Verb: job.Cancel, Filter: ofNotes}, job.Tally{Matched: 8, Done: 6, TooLate: 2}, 2},
		"cancel parked": {job.Spec{Verb: job.Cancel, Filter: inspect.Filter{State: inspect.StateParked}}, job.Tally{Matched: 2, Done: 2}, 6},
		"dry run":       {job.Spec{Verb: job.Cancel, Filter: ofNotes, DryRun: true}, job.Tally{Matched: 8}, 8},
		"reschedule":    {job.Spec{Verb: job.Reschedule, Filter: ofNotes, At: time.Now().Add(storetest.Never)}, job.Tally{Matched: 8, Done: 6, TooLate: 2}, 8},
		"redrive":       {job.Spec{Verb: job.Redrive, Filter: inspect.Filter{ReasonContains: "fuse"}}, job.Tally{Matched: 2, Done: 2}, 8},
		"purge":         {job.Spec{Verb: job.Purge, Filter: inspect.Filter{IDPrefix: "dead-2"}}, job.Tally{Matched: 1, Done: 1}, 7},
		"other reason":  {job.Spec{Verb: job.Purge, Filter: inspect.Filter{Reason: "other"}}, job.Tally{}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := storetest.States(t, rdb)
			found := finish(t, startJob(t, q, c.spec), 3)
			require.Equal(t, job.Done, found.State)
			require.Equal(t, c.want, found.Tally)
			require.Len(t, storetest.ListAll(t, q, inspect.ListRequest{Limit: 10}, nil), c.left)
			shard, err := storetest.Dump(t.Context(), rdb, q.Name(), 0)
			require.NoError(t, err)
			require.NoError(t, shard.Check())
			if name == "purge" {
				require.Equal(t, int64(1), shard.Counter("purged"))
			}
		})
	}
}

// TestJobSpec: what cannot be meant is refused.
func TestJobSpec(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 1)
	some := inspect.Filter{Topic: "t"}
	for text, spec := range map[string]job.Spec{
		"empty filter":    {Verb: job.Cancel},
		"verb \"x\"":      {Verb: "x", Filter: some},
		"rate -1":         {Verb: job.Cancel, Filter: some, Rate: -1},
		"either at or by": {Verb: job.Reschedule, Filter: some},
		"by 1ns":          {Verb: job.Reschedule, Filter: some, By: 1},
		"dead letters":    {Verb: job.Purge, Filter: inspect.Filter{State: inspect.StateParked}},
		"tag \"a b\"":     {Verb: job.Cancel, Filter: inspect.Filter{Tag: "a b"}},
	} {
		_, err := job.New(q).Start(t.Context(), spec)
		require.ErrorIs(t, err, job.ErrSpec)
		require.ErrorContains(t, err, text)
	}
}

// TestJobStops after what it is just about, and others go on after it was given back.
func TestJobStops(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 1)
	for i := range 20 {
		storetest.Create(t, q, fmt.Sprint("m-", i), storetest.Later())
	}
	run := startJob(t, q, job.Spec{Verb: job.Cancel, Filter: inspect.Filter{IDPrefix: "m-"}})
	_, err := run.Step(t.Context(), 5)
	require.NoError(t, err)
	require.NoError(t, run.Release(t.Context()))
	id := run.Job().ID
	require.NoError(t, job.New(q).Stop(t.Context(), id))
	var next *job.Run
	require.Eventually(t, func() bool {
		next, err = job.New(q).Take(t.Context(), id, "b")
		return err == nil
	}, time.Minute, time.Millisecond)
	found := finish(t, next, 5)
	require.Equal(t, job.Stopped, found.State)
	require.Equal(t, job.Tally{Matched: 5, Done: 5}, found.Tally)
	_, err = run.Step(t.Context(), 5)
	require.ErrorIs(t, err, job.ErrLost)
	jobs, cursor, err := job.New(q).List(t.Context(), "")
	require.NoError(t, err)
	require.Empty(t, cursor)
	require.Len(t, jobs, 1)
	_, err = job.New(q).Get(t.Context(), "none")
	require.ErrorIs(t, err, job.ErrNone)
}

// TestJobComesBack: a message that was too late and came back is tried again, and
// counted once.
func TestJobComesBack(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 1)
	b := storetest.NewBridge(t, q)
	storetest.Create(t, q, "m-1", storetest.Past())
	claim := b.Claim(10)
	storetest.Create(t, q, "m-2", storetest.Later())
	run := startJob(t, q, job.Spec{Verb: job.Cancel, Filter: inspect.Filter{IDPrefix: "m-"}})
	for !run.Waits() {
		_, err := run.Step(t.Context(), 1)
		require.NoError(t, err)
	}
	require.Equal(t, job.Tally{Matched: 2, Done: 1, TooLate: 1}, run.Job().Tally)
	b.Settle(claim, message.Verdict{Verb: message.VerbDeadLetter, Reason: "refused"})
	require.Equal(t, job.Tally{Matched: 2, Done: 2}, finish(t, run, 1).Tally)
}

// TestUnreadableRecord: a job whose record cannot be read has failed, and who took it has no job.
func TestUnreadableRecord(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	id, err := job.New(q).Start(t.Context(), job.Spec{Verb: job.Cancel, Filter: ofNotes})
	require.NoError(t, err)
	require.NoError(t, rdb.HSet(t.Context(), q.Keys().Jobs(), id, "{").Err())
	_, err = job.New(q).Take(t.Context(), id, "a")
	require.ErrorIs(t, err, job.ErrLost)
	found, err := job.New(q).Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, job.Failed, found.State)
	require.Contains(t, found.Err, "cannot be read")
}
