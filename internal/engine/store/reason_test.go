package store_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// bury makes dead letters of those reasons, named by their order.
func bury(t *testing.T, q *store.Queue, reasons ...string) {
	t.Helper()
	b := newBridge(t, q)
	for i, reason := range reasons {
		create(t, q, string(rune('a'+i)), past())
		b.settle(b.claim(10), message.Verdict{Verb: message.VerbDeadLetter, Reason: reason})
	}
}

// TestReasonIsExact: who purges those of a reason does not purge those whose reason has it in it.
func TestReasonIsExact(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	for name, c := range map[string]struct {
		filter store.Filter
		left   []string
	}{
		"exact":   {store.Filter{Reason: "refused"}, []string{"refused: too large", "not refused"}},
		"part":    {store.Filter{ReasonContains: "refused"}, nil},
		"both":    {store.Filter{Reason: "refused: too large", ReasonContains: "large"}, []string{"refused", "not refused", "refused"}},
		"of none": {store.Filter{Reason: "refuse"}, []string{"refused", "refused: too large", "not refused", "refused"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := storetest.New(t, rdb, 1)
			bury(t, q, "refused", "refused: too large", "not refused", "refused")
			job := finish(t, startJob(t, q, store.JobSpec{Verb: store.JobPurge, Filter: c.filter}), 2)
			require.Equal(t, store.Tally{Matched: int64(4 - len(c.left)), Done: int64(4 - len(c.left))}, job.Tally)
			var left []string
			for _, m := range listAll(t, q, store.ListRequest{Limit: 10}, nil) {
				left = append(left, m.Found.Reason)
			}
			require.Equal(t, c.left, left)
		})
	}
	_, err := storetest.New(t, rdb, 1).Admin().List(t.Context(), store.ListRequest{Limit: 1, Filter: store.Filter{Reason: "a", ReasonContains: "b"}})
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
	id, err := q.Jobs().Start(t.Context(), store.JobSpec{Verb: store.JobPurge, Filter: store.Filter{Reason: "refused"}})
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
	run, err := q.Jobs().Take(t.Context(), id, "new")
	require.NoError(t, err)
	require.Equal(t, store.Filter{State: store.StateDead, Reason: "refused"}, run.Job().Spec.Filter)
	require.Equal(t, store.Tally{Matched: 1, Done: 1}, finish(t, run, 5).Tally)

	id, err = q.Jobs().Start(t.Context(), store.JobSpec{Verb: store.JobPurge, Filter: store.Filter{ReasonContains: "refused"}})
	require.NoError(t, err)
	rewrite(id, func(old *oldJob) {
		require.Equal(t, []string{"dead", "refused"}, []string{old.Spec.Filter.State, old.Spec.Filter.Reason})
	})
	run, err = q.Jobs().Take(t.Context(), id, "new")
	require.NoError(t, err)
	require.Equal(t, store.Filter{State: store.StateDead, ReasonContains: "refused"}, run.Job().Spec.Filter)
	require.Equal(t, store.Tally{Matched: 1, Done: 1}, finish(t, run, 5).Tally)
}
