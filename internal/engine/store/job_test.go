package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// startJob starts a job and takes it.
func startJob(t testing.TB, q *store.Queue, spec store.JobSpec) *store.JobRun {
	t.Helper()
	id, err := q.Jobs().Start(t.Context(), spec)
	require.NoError(t, err)
	run, err := q.Jobs().Take(t.Context(), id, "a")
	require.NoError(t, err)
	return run
}

// finish makes steps until the job has ended; what is in flight after a look by name stays so.
func finish(t testing.TB, run *store.JobRun, most int) store.Job {
	t.Helper()
	for looked := false; ; looked = run.Waits() {
		var err error
		if looked && run.Waits() {
			err = run.Finish(t.Context())
		} else {
			_, err = run.Step(t.Context(), most)
		}
		require.NoError(t, err)
		if job := run.Job(); job.State.Ended() {
			return job
		}
	}
}

// die has the job's runner die now: another instance takes the job.
func die(t testing.TB, rdb *redis.Client, q *store.Queue, run *store.JobRun) *store.JobRun {
	t.Helper()
	id := run.Job().ID
	_, err := q.Jobs().Take(t.Context(), id, "b")
	require.ErrorIs(t, err, store.ErrJobLost, "it is another's")
	require.NoError(t, rdb.HDel(t.Context(), q.Keys().Jobs(), id+" lease").Err())
	next, err := q.Jobs().Take(t.Context(), id, "b")
	require.NoError(t, err)
	return next
}

// TestJobGoesOn: whenever runners die between what they do and its record, another one
// finishes the job, and its tally is what happened to each message.
func TestJobGoesOn(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 3)
	const count = 100
	for i := range count {
		tag(t, q, note(fmt.Sprintf("m-%03d", i), ""), later(), "sale")
		create(t, q, fmt.Sprintf("other-%03d", i), later())
	}
	run := startJob(t, q, store.JobSpec{Verb: store.JobCancel, Filter: store.Filter{Tag: "sale"}})
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
	require.Equal(t, store.JobDone, run.Job().State)
	require.Equal(t, store.Tally{Matched: count, Done: count}, run.Job().Tally)
	list := listAll(t, q, store.ListRequest{Limit: 100}, nil)
	require.Len(t, list, count)
	for _, m := range list {
		require.Contains(t, m.Found.ID, "other")
	}
	job, err := q.Jobs().Get(t.Context(), run.Job().ID)
	require.NoError(t, err)
	require.Equal(t, run.Job().Tally, job.Tally)
	open, err := q.Jobs().Open(t.Context())
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
	base := time.Now().Add(never).Truncate(time.Millisecond)
	due := func(i int) time.Time { return base.Add(time.Duration(i) * time.Second) }
	var rows []store.Row
	for i := range count {
		if i%3 == 0 {
			rows = append(rows, store.Row{Token: rowToken(i), DueAt: due(i), Message: note(fmt.Sprintf("m-%02d", i), "")})
			continue
		}
		create(t, q, fmt.Sprintf("m-%02d", i), at(due(i).UnixMilli()))
	}
	for _, a := range q.Rows().Put(t.Context(), rows) {
		answered(t, store.Created, a)
	}
	for n, by := range []time.Duration{10 * time.Second, -5 * time.Second} {
		run := startJob(t, q, store.JobSpec{Verb: store.JobReschedule, Filter: store.Filter{State: store.StateScheduled}, By: by})
		for i := 0; !run.Job().State.Ended(); i++ {
			_, err := run.Step(t.Context(), 4)
			require.NoError(t, err)
			if i%4 == 3 && !run.Job().State.Ended() {
				run = die(t, rdb, q, run)
			}
		}
		require.Equal(t, store.Tally{Matched: count, Done: count}, run.Job().Tally)
		for _, m := range listAll(t, q, store.ListRequest{Limit: 100}, nil) {
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
var ofNotes = store.Filter{Topic: note("", "").Topic}

// TestJobTally tells of each message in each state what became of it.
func TestJobTally(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	for name, c := range map[string]struct {
		spec store.JobSpec
		want store.Tally
		left int
	}{
		"cancel":        {store.JobSpec{Verb: store.JobCancel, Filter: ofNotes}, store.Tally{Matched: 8, Done: 6, TooLate: 2}, 2},
		"cancel parked": {store.JobSpec{Verb: store.JobCancel, Filter: store.Filter{State: store.StateParked}}, store.Tally{Matched: 2, Done: 2}, 6},
		"dry run":       {store.JobSpec{Verb: store.JobCancel, Filter: ofNotes, DryRun: true}, store.Tally{Matched: 8}, 8},
		"reschedule":    {store.JobSpec{Verb: store.JobReschedule, Filter: ofNotes, At: time.Now().Add(never)}, store.Tally{Matched: 8, Done: 6, TooLate: 2}, 8},
		"redrive":       {store.JobSpec{Verb: store.JobRedrive, Filter: store.Filter{ReasonContains: "fuse"}}, store.Tally{Matched: 2, Done: 2}, 8},
		"purge":         {store.JobSpec{Verb: store.JobPurge, Filter: store.Filter{IDPrefix: "dead-2"}}, store.Tally{Matched: 1, Done: 1}, 7},
		"other reason":  {store.JobSpec{Verb: store.JobPurge, Filter: store.Filter{Reason: "other"}}, store.Tally{}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := statesOf(t, rdb)
			job := finish(t, startJob(t, q, c.spec), 3)
			require.Equal(t, store.JobDone, job.State)
			require.Equal(t, c.want, job.Tally)
			require.Len(t, listAll(t, q, store.ListRequest{Limit: 10}, nil), c.left)
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
	some := store.Filter{Topic: "t"}
	for text, spec := range map[string]store.JobSpec{
		"empty filter":    {Verb: store.JobCancel},
		"verb \"x\"":      {Verb: "x", Filter: some},
		"rate -1":         {Verb: store.JobCancel, Filter: some, Rate: -1},
		"either at or by": {Verb: store.JobReschedule, Filter: some},
		"by 1ns":          {Verb: store.JobReschedule, Filter: some, By: 1},
		"dead letters":    {Verb: store.JobPurge, Filter: store.Filter{State: store.StateParked}},
		"tag \"a b\"":     {Verb: store.JobCancel, Filter: store.Filter{Tag: "a b"}},
	} {
		_, err := q.Jobs().Start(t.Context(), spec)
		require.ErrorIs(t, err, store.ErrJobSpec)
		require.ErrorContains(t, err, text)
	}
}

// TestJobStops after what it is just about, and others go on after it was given back.
func TestJobStops(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 1)
	for i := range 20 {
		create(t, q, fmt.Sprint("m-", i), later())
	}
	run := startJob(t, q, store.JobSpec{Verb: store.JobCancel, Filter: store.Filter{IDPrefix: "m-"}})
	_, err := run.Step(t.Context(), 5)
	require.NoError(t, err)
	require.NoError(t, run.Release(t.Context()))
	id := run.Job().ID
	require.NoError(t, q.Jobs().Stop(t.Context(), id))
	var next *store.JobRun
	require.Eventually(t, func() bool {
		next, err = q.Jobs().Take(t.Context(), id, "b")
		return err == nil
	}, time.Minute, time.Millisecond)
	job := finish(t, next, 5)
	require.Equal(t, store.JobStopped, job.State)
	require.Equal(t, store.Tally{Matched: 5, Done: 5}, job.Tally)
	_, err = run.Step(t.Context(), 5)
	require.ErrorIs(t, err, store.ErrJobLost)
	jobs, cursor, err := q.Jobs().List(t.Context(), "")
	require.NoError(t, err)
	require.Empty(t, cursor)
	require.Len(t, jobs, 1)
	_, err = q.Jobs().Get(t.Context(), "none")
	require.ErrorIs(t, err, store.ErrNoJob)
}

// TestJobComesBack: a message that was too late and came back is tried again, and
// counted once.
func TestJobComesBack(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 1)
	b := newBridge(t, q)
	create(t, q, "m-1", past())
	claim := b.claim(10)
	create(t, q, "m-2", later())
	run := startJob(t, q, store.JobSpec{Verb: store.JobCancel, Filter: store.Filter{IDPrefix: "m-"}})
	for !run.Waits() {
		_, err := run.Step(t.Context(), 1)
		require.NoError(t, err)
	}
	require.Equal(t, store.Tally{Matched: 2, Done: 1, TooLate: 1}, run.Job().Tally)
	b.settle(claim, message.Verdict{Verb: message.VerbDeadLetter, Reason: "refused"})
	require.Equal(t, store.Tally{Matched: 2, Done: 2}, finish(t, run, 1).Tally)
}
