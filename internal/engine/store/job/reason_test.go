package job_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// bury makes dead letters of those reasons, named by their order.
func bury(t *testing.T, q *store.Queue, reasons ...string) {
	t.Helper()
	b := storetest.NewBridge(t, q)
	for i, reason := range reasons {
		storetest.Create(t, q, string(rune('a'+i)), storetest.Past())
		b.Settle(b.Claim(10), message.Verdict{Verb: message.VerbDeadLetter, Reason: reason})
	}
}

// TestReasonIsExact: who purges those of a reason does not purge those whose reason has it in it.
func TestReasonIsExact(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	for name, c := range map[string]struct {
		filter inspect.Filter
		left   []string
	}{
		"exact":   {inspect.Filter{Reason: "refused"}, []string{"refused: too large", "not refused"}},
		"part":    {inspect.Filter{ReasonContains: "refused"}, nil},
		"both":    {inspect.Filter{Reason: "refused: too large", ReasonContains: "large"}, []string{"refused", "not refused", "refused"}},
		"of none": {inspect.Filter{Reason: "refuse"}, []string{"refused", "refused: too large", "not refused", "refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := storetest.New(t, rdb, 1)
			bury(t, q, "refused", "refused: too large", "not refused", "refused")
			found := finish(t, startJob(t, q, job.Spec{Verb: job.Purge, Filter: c.filter}), 2)
			require.Equal(t, job.Tally{Matched: int64(4 - len(c.left)), Done: int64(4 - len(c.left))}, found.Tally)
			var left []string
			for _, m := range storetest.ListAll(t, q, inspect.ListRequest{Limit: 10}, nil) {
				left = append(left, m.Found.Reason)
			}
			require.Equal(t, c.left, left)
		})
	}
	_, err := inspect.NewAdmin(storetest.New(t, rdb, 1)).List(t.Context(), inspect.ListRequest{Limit: 1, Filter: inspect.Filter{Reason: "a", ReasonContains: "b"}})
	require.ErrorContains(t, err, `reason_contains "b"`)
}

// oldJob is the record of a job as versions before ReasonContains read and wrote it.
type oldJob struct {
	ID   string `json:"id"`
	Spec struct {
		Verb   string `json:"verb"`
		Filter struct{ State, Topic, Key, IDPrefix, Tag, Reason, From, To string }
	} `json:"spec"`
	State     string `json:"state"`
	StartedAt string `json:"started_at"`
	Mark      string `json:"mark"`
}

// TestReasonInRecords: while versions are mixed, a job of an exact reason is left alone by
// those that know parts only, also where one has taken it and given it back, and a job that
// such a one has started means a part.
func TestReasonInRecords(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	bury(t, q, "refused", "refused: too large")
	key := "delay:" + q.Name() + ":jobs"
	id, err := job.New(q).Start(t.Context(), job.Spec{Verb: job.Purge, Filter: inspect.Filter{Reason: "refused"}})
	require.NoError(t, err)
	rewrite := func(id string, change func(*oldJob)) {
		text, err := rdb.HGet(t.Context(), key, id).Result()
		require.NoError(t, err)
		var old oldJob
		require.NoError(t, json.Unmarshal([]byte(text), &old))
		change(&old)
		again, err := json.Marshal(old)
		require.NoError(t, err)
		require.NoError(t, rdb.HSet(t.Context(), key, id, again).Err())
	}
	rewrite(id, func(old *oldJob) {
		require.NotContains(t, []string{"", "scheduled", "parked", "in_flight", "dead"}, old.Spec.Filter.State, "it lists no such state, and so does nothing")
	})
	run, err := job.New(q).Take(t.Context(), id, "new")
	require.NoError(t, err)
	require.Equal(t, inspect.Filter{State: inspect.StateDead, Reason: "refused"}, run.Job().Spec.Filter)
	require.Equal(t, job.Tally{Matched: 1, Done: 1}, finish(t, run, 5).Tally)

	id, err = job.New(q).Start(t.Context(), job.Spec{Verb: job.Purge, Filter: inspect.Filter{ReasonContains: "refused"}})
	require.NoError(t, err)
	rewrite(id, func(old *oldJob) {
		require.Equal(t, []string{"dead", "refused"}, []string{old.Spec.Filter.State, old.Spec.Filter.Reason})
	})
	run, err = job.New(q).Take(t.Context(), id, "new")
	require.NoError(t, err)
	require.Equal(t, inspect.Filter{State: inspect.StateDead, ReasonContains: "refused"}, run.Job().Spec.Filter)
	require.Equal(t, job.Tally{Matched: 1, Done: 1}, finish(t, run, 5).Tally)
}
