package job_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// mover claims and settles at random, so that messages are before and behind wherever a job is.
type mover struct {
	*storetest.Bridge

	random *rand.Rand
	claims []message.Claim
}

// move does something, but publishes nothing.
func (m *mover) move() {
	switch n := 1 + m.random.IntN(20); {
	case len(m.claims) > 8:
		m.settleAll(storetest.Released)
	case m.random.IntN(3) == 0:
		m.keep(m.Claim(n))
	case m.random.IntN(5) == 0:
		m.keep(m.ClaimSlot(storetest.Parked.Slot, n))
	case len(m.claims) == 0:
	case m.random.IntN(5) == 0: // As if its holder had died.
		_, _, err := m.Queue.Shard(0).Reclaim(m.TB.Context(), message.Reclaim{Instance: m.Instance, Stray: m.claims[0].Token})
		require.NoError(m.TB, err)
		m.claims = m.claims[1:]
	default:
		verdicts := []message.Verdict{storetest.Released, storetest.Unknown, storetest.Parked, storetest.Parked, storetest.Buried, {Verb: message.VerbRetry, Attempts: message.Attempts{Failures: 1, Begun: 1}}}
		m.Settle(m.claims[0], verdicts[m.random.IntN(len(verdicts))])
		m.claims = m.claims[1:]
	}
}

func (m *mover) keep(claim message.Claim) {
	if len(claim.Messages) > 0 {
		m.claims = append(m.claims, claim)
	}
}

func (m *mover) settleAll(v message.Verdict) {
	for _, claim := range m.claims {
		m.Settle(claim, v)
	}
	m.claims = nil
}

// TestJobMeetsWhatMoves has messages claimed, released, reclaimed, retried, parked, put back
// and buried while a job goes on, and its runner die: it changes each of them once.
func TestJobMeetsWhatMoves(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	const count = 300
	for name, spec := range map[string]job.Spec{
		"cancel":            {Verb: job.Cancel, Filter: ofNotes},
		"cancel by id":      {Verb: job.Cancel, Filter: inspect.Filter{IDPrefix: "m-"}},
		"cancel by tag":     {Verb: job.Cancel, Filter: inspect.Filter{Tag: "sale"}},
		"cancel by time":    {Verb: job.Cancel, Filter: inspect.Filter{To: time.Now().Add(storetest.Never)}},
		"reschedule":        {Verb: job.Reschedule, Filter: ofNotes, At: time.Now().Add(2 * storetest.Never)},
		"reschedule by tag": {Verb: job.Reschedule, Filter: inspect.Filter{Tag: "sale"}, At: time.Now().Add(2 * storetest.Never)},
	} {
		for seed := range uint64(3) {
			t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) {
				t.Parallel()
				q := storetest.New(t, rdb, 1)
				m := &mover{Bridge: storetest.NewBridge(t, q), random: rand.New(rand.NewPCG(seed, 0))}
				for i := range count {
					storetest.Tag(t, q, storetest.Note(fmt.Sprintf("m-%03d", i), strings.Repeat("x", m.random.IntN(3000))), store.When{Ms: int64(1_000_000 + m.random.IntN(100))}, "sale")
				}
				run := startJob(t, q, spec)
				for steps := 0; !run.Job().State.Ended(); steps++ {
					for range m.random.IntN(4) {
						m.move()
					}
					if steps > 200 {
						m.settleAll(storetest.Released)
					}
					_, err := run.Step(t.Context(), 1+m.random.IntN(30))
					require.NoError(t, err)
					if m.random.IntN(10) == 0 && !run.Job().State.Ended() {
						run = die(t, rdb, q, run)
					}
				}
				found := run.Job()
				require.Equal(t, job.Done, found.State)
				found.Tally.Done, found.Tally.MaybePublished = found.Tally.Done+found.Tally.MaybePublished, 0
				require.Equal(t, job.Tally{Matched: count, Done: count}, found.Tally)
				require.Zero(t, *found.Remaining)
				shard := storetest.Sound(t, rdb, q)
				require.Empty(t, shard.Dead)
				if spec.Verb == job.Cancel {
					require.Empty(t, shard.Msg)
					return
				}
				require.Len(t, shard.Due, count)
				for id, due := range shard.Due {
					require.Equal(t, spec.At.UnixMilli(), due, id)
				}
			})
		}
	}
}

// TestJobSaysWhatRemains: what stays in flight is too late, and still matches.
func TestJobSaysWhatRemains(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 1)
	b := storetest.NewBridge(t, q)
	for i := range 5 {
		storetest.Create(t, q, fmt.Sprint("m-", i), storetest.Past())
	}
	claim := b.Claim(3)
	run := startJob(t, q, job.Spec{Verb: job.Cancel, Filter: ofNotes})
	for !run.Waits() {
		_, err := run.Step(t.Context(), 2)
		require.NoError(t, err)
	}
	require.Equal(t, job.Tally{Matched: 5, Done: 2, TooLate: 3}, run.Job().Tally)
	part := storetest.Settlement(claim, storetest.Kept)
	part.Verdicts[0] = storetest.Acked
	_, err := q.Shard(0).Settle(t.Context(), part)
	require.NoError(t, err)
	found := finish(t, run, 10)
	require.Equal(t, job.Tally{Matched: 5, Done: 2, TooLate: 3}, found.Tally, "one was published")
	require.Equal(t, int64(2), *found.Remaining)
	dry := finish(t, startJob(t, q, job.Spec{Verb: job.Cancel, Filter: ofNotes, DryRun: true}), 10)
	require.Equal(t, job.Tally{Matched: 2}, dry.Tally)
	require.Nil(t, dry.Remaining, "it has changed nothing")
}

// TestJobAfterFailover: the cursor of a server that is no more means nothing to the one that
// has taken over, whose hashes are in another order: nothing is missed.
func TestJobAfterFailover(t *testing.T) {
	t.Parallel()
	const count = 3000
	first, second := storetest.Connect(t, testenv.StartRedis(t).URL()), storetest.Connect(t, testenv.StartRedis(t).URL())
	q := storetest.New(t, first, 1)
	b := storetest.NewBridge(t, q)
	for i := range count {
		storetest.Create(t, q, fmt.Sprintf("m-%04d", i), storetest.Past())
	}
	spec := job.Spec{Verb: job.Reschedule, Filter: inspect.Filter{State: inspect.StateInFlight}, By: time.Hour}
	run := startJob(t, q, spec)
	b.Claim(store.MaxBatch)
	for range 8 {
		_, err := run.Step(t.Context(), 1)
		require.NoError(t, err)
	}
	require.NoError(t, run.Release(t.Context()))
	copyAll(t, first, second)
	q = store.New(second, storetest.Prefix, q.Name())
	var next *job.Run
	require.Eventually(t, func() (taken bool) {
		var err error
		next, err = job.New(q).Take(t.Context(), run.Job().ID, "b")
		return err == nil
	}, time.Minute, time.Millisecond)
	for !next.Waits() {
		_, err := next.Step(t.Context(), 200)
		require.NoError(t, err)
	}
	require.Equal(t, job.Tally{Matched: store.MaxBatch, TooLate: store.MaxBatch}, next.Job().Tally)
}

// copyAll has another server hold what one holds.
func copyAll(t *testing.T, from, to *redis.Client) {
	t.Helper()
	names, err := from.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	for _, name := range names {
		content, err := from.Dump(t.Context(), name).Result()
		require.NoError(t, err)
		left, err := from.PTTL(t.Context(), name).Result()
		require.NoError(t, err)
		require.NoError(t, to.Restore(t.Context(), name, max(0, left), content).Err())
	}
}

// TestJobLeaseAfterClock: a lease from before Redis' clock was set back by an hour does not
// stand for the hour.
func TestJobLeaseAfterClock(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	storetest.Create(t, q, "m-1", storetest.Later())
	run := startJob(t, q, job.Spec{Verb: job.Cancel, Filter: ofNotes})
	_, err := job.New(q).Take(t.Context(), run.Job().ID, "b")
	require.ErrorIs(t, err, job.ErrLost, "its runner lives")
	now, err := storetest.Now(t.Context(), rdb)
	require.NoError(t, err)
	field := run.Job().ID + " lease"
	lease, err := rdb.HGet(t.Context(), q.Keys().Jobs(), field).Result()
	require.NoError(t, err)
	_, owner, _ := strings.Cut(lease, " ")
	require.NoError(t, rdb.HSet(t.Context(), q.Keys().Jobs(), field, fmt.Sprint(now+time.Hour.Milliseconds(), " ", owner)).Err())
	next, err := job.New(q).Take(t.Context(), run.Job().ID, "b")
	require.NoError(t, err)
	_, err = run.Step(t.Context(), 1)
	require.ErrorIs(t, err, job.ErrLost)
	require.Equal(t, job.Tally{Matched: 1, Done: 1}, finish(t, next, 1).Tally)
}

// TestJobBesideKeeper: an earlier layout's shard is emptied by the last step of a job whose
// runner dies before it is written down: it cancels all, or has all published. The keeper
// leaves the shard, and with it what it remembers, for longer than the step may be asked for;
// when it is dropped all the same, the job says that it does not know.
func TestJobBesideKeeper(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(storetest.Past().Ms)
	for name, c := range map[string]struct {
		spec   job.Spec
		isLate bool
	}{
		"cancelled within the minute": {job.Spec{Verb: job.Cancel, Filter: ofNotes}, false},
		"cancelled, later":            {job.Spec{Verb: job.Cancel, Filter: ofNotes}, true},
		"published within the minute": {job.Spec{Verb: job.Reschedule, Filter: ofNotes, At: now}, false},
		"published, later":            {job.Spec{Verb: job.Reschedule, Filter: ofNotes, At: now}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := shared(t)
			q := storetest.New(t, rdb, 2)
			const count = 20
			for i := range count {
				storetest.Create(t, q, fmt.Sprint("m-", i), storetest.Later())
			}
			_, err := q.Layouts().SetShards(t.Context(), 1)
			require.NoError(t, err)
			run := startJob(t, q, c.spec)
			_, err = run.Step(t.Context(), store.MaxBatch)
			require.NoError(t, err)
			require.Equal(t, job.Tally{Matched: count, Done: count}, run.Job().Tally, "nobody has written it down")
			if c.spec.Verb == job.Reschedule {
				require.Equal(t, count, publishAll(t, q))
			}
			keeper := q.NewKeeper()
			if c.isLate {
				keeper = layout.NewKeeper(q.Layouts(), 0)
				stepBegan(t, rdb, q, run, time.Now().Add(-2*time.Minute))
			}
			var after *store.Layout
			for range 20 {
				require.NoError(t, keeper.Step(t.Context()))
				after, err = q.LoadLayout(t.Context())
				require.NoError(t, err)
			}
			want := job.Tally{Matched: count, Done: count}
			if require.Equal(t, c.isLate, len(after.Earlier) == 0); c.isLate {
				n, err := rdb.Exists(t.Context(), storetest.Key(q.Name(), 1, "meta")).Result()
				require.NoError(t, err)
				require.Zero(t, n, "dropped")
			}
			found := finish(t, die(t, rdb, q, run), store.MaxBatch)
			if c.isLate { // What the shard in force remembers is known still.
				require.Positive(t, found.Tally.Unknown)
				want = job.Tally{Matched: count, Done: count - found.Tally.Unknown, Unknown: found.Tally.Unknown}
			}
			require.Equal(t, job.Done, found.State)
			require.Equal(t, want, found.Tally)
		})
	}
}

// publishAll claims and acknowledges what is due in both shards.
func publishAll(t *testing.T, q *store.Queue) (published int) {
	t.Helper()
	_, err := q.LoadLayout(t.Context())
	require.NoError(t, err)
	for number := range 2 {
		claim, err := q.Shard(number).Claim(t.Context(), storetest.NewBridge(t, q).Request(store.MaxBatch))
		require.NoError(t, err)
		_, err = q.Shard(number).Settle(t.Context(), storetest.Settlement(claim, storetest.Acked))
		require.NoError(t, err)
		published += len(claim.Messages)
	}
	return published
}

// stepBegan has the step in the job's record begin then.
func stepBegan(t *testing.T, rdb *redis.Client, q *store.Queue, run *job.Run, at time.Time) {
	t.Helper()
	field := run.Job().ID
	text, err := rdb.HGet(t.Context(), q.Keys().Jobs(), field).Result()
	require.NoError(t, err)
	var record map[string]any
	require.NoError(t, json.Unmarshal([]byte(text), &record))
	record["step"].(map[string]any)["at"] = at
	changed, err := json.Marshal(record)
	require.NoError(t, err)
	require.NoError(t, rdb.HSet(t.Context(), q.Keys().Jobs(), field, changed).Err())
}
