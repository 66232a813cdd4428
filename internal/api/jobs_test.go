package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
)

// TestJobs starts, shows and stops a job; that a bridge runs it is the affair of
// package jobs.
func TestJobs(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	id, _ := s.call("POST", "/queues/QUEUE/messages:reschedule", map[string]any{
		"filter": map[string]any{"tag": "customer-7", "due_to": "2030-01-01T00:00:00.000Z"}, "by": "-30m", "rate": 500,
	}).is(http.StatusAccepted)["job"].(string)
	found, err := job.New(s.queue).Get(t.Context(), id)
	require.NoError(t, err)
	assert.Equal(t, job.Spec{
		Verb: job.Reschedule, Filter: inspect.Filter{Tag: "customer-7", To: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}, By: -30 * time.Minute, Rate: 500,
	}, found.Spec)

	shown := s.call("GET", "/jobs/"+id, nil).is(http.StatusOK)
	assert.Equal(t, "waiting", shown["state"])
	assert.Equal(t, map[string]any{"tag": "customer-7", "due_to": "2030-01-01T00:00:00.000Z"}, shown["filter"])
	for _, count := range []string{"matched", "done", "too_late", "maybe_published", "failed"} {
		assert.Zero(t, shown[count], count)
	}
	assert.Len(t, s.call("GET", "/jobs", nil).is(http.StatusOK)["jobs"], 1)
	assert.Contains(t, []any{"waiting", "stopped"}, s.call("POST", "/jobs/"+id+":stop", nil).is(http.StatusOK)["state"])
	changes := s.call("GET", "/audit?queue=QUEUE", nil).is(http.StatusOK)["changes"].([]any)
	assert.Equal(t, "stop job", changes[0].(map[string]any)["action"])
	what, _ := changes[1].(map[string]any)["what"].(string)
	assert.JSONEq(t, `{"tag": "customer-7", "due_to": "2030-01-01T00:00:00.000Z"}`, what)
}

// TestWrongJobs: what cannot be meant is refused, and says which field it is.
func TestWrongJobs(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	for body, field := range map[string]string{
		`{"filter": {}}`:                                                     "filter",
		`{"filter": {"tag": "a"}, "by": "soon"}`:                             "by",
		`{"filter": {"tag": "a"}, "by": "--1h"}`:                             "by",
		`{"filter": {"tag": "a"}, "by": "+-1h"}`:                             "by",
		`{"filter": {"tag": "a"}, "in": "soon"}`:                             "in",
		`{"filter": {"tag": "a"}, "in": "1h", "at": "2030-01-01T00:00:00Z"}`: "in",
		`{"filter": {"tag": "a", "due_from": "tomorrow"}, "by": "1h"}`:       "filter.due_from",
		`{"filter": {"tag": "a"}}`:                                           "",
		`{"filter": {"tag": "a"}, "by": "1h", "at": "2030-01-01T00:00:00Z"}`: "",
	} {
		assert.Equal(t, field, s.call("POST", "/queues/QUEUE/messages:reschedule", body).refused(http.StatusBadRequest, "invalid"), body)
	}
	s.call("POST", "/queues/QUEUE/dead:purge", `{"filter": {"state": "scheduled"}}`).refused(http.StatusBadRequest, "invalid")
	s.call("GET", "/jobs/none", nil).refused(http.StatusNotFound, "not_found")
	s.call("POST", "/jobs/none:stop", nil).refused(http.StatusNotFound, "not_found")
	assert.Empty(t, s.call("GET", "/jobs", nil).is(http.StatusOK)["jobs"])
}

// TestReason: a reason is meant to the letter, a part of it by another name.
func TestReason(t *testing.T) {
	t.Parallel()
	s := newScene(t, scenery{})
	reasons := map[string]string{"a": "refused", "b": "refused: too large"}
	s.schedule("a", "at", longAgo)
	s.schedule("b", "at", longAgo)
	for shard, claim := range s.claim() {
		settlement := message.Settlement{Claim: claim}
		for _, m := range claim.Messages {
			settlement.Verdicts = append(settlement.Verdicts, message.Verdict{Verb: message.VerbDeadLetter, Reason: reasons[m.ID]})
		}
		_, err := s.queue.Shard(shard).Settle(t.Context(), settlement)
		require.NoError(t, err)
	}
	for query, want := range map[string]int{"reason=refused": 1, "reason=refuse": 0, "reason_contains=refuse": 2, "reason=refused&reason_contains=fuse": 1} {
		assert.Len(t, s.call("GET", "/queues/QUEUE/messages?"+query, nil).is(http.StatusOK)["messages"], want, query)
	}
	filter := map[string]any{"state": "dead", "reason": "refused"}
	id, _ := s.call("POST", "/queues/QUEUE/dead:purge", map[string]any{"filter": filter}).is(http.StatusAccepted)["job"].(string)
	assert.Equal(t, filter, s.call("GET", "/jobs/"+id, nil).is(http.StatusOK)["filter"])
	filter = map[string]any{"state": "dead", "reason_contains": "refused"}
	id, _ = s.call("POST", "/queues/QUEUE/dead:purge", map[string]any{"filter": filter}).is(http.StatusAccepted)["job"].(string)
	assert.Equal(t, filter, s.call("GET", "/jobs/"+id, nil).is(http.StatusOK)["filter"])
	s.call("POST", "/queues/QUEUE/dead:purge", `{"filter": {"reason": "a", "reason_contains": "b"}}`).refused(http.StatusBadRequest, "invalid")
}
