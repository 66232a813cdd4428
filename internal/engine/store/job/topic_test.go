package job_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestJobKeepsToItsTopic: what a job matched without its token, as it cannot be read, may
// be another message when its turn comes.
func TestJobKeepsToItsTopic(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	storetest.Create(t, q, "a", storetest.Later())
	msg := q.Keys().Shard(0).Msg
	// Its topic is there, and its headers are cut short.
	require.NoError(t, rdb.HSet(t.Context(), msg, "a", rdb.HGet(t.Context(), msg, "a").Val()[:38]).Err())
	run := startJob(t, q, job.Spec{Verb: job.Cancel, Filter: inspect.Filter{Topic: "topic"}})
	require.NoError(t, run.Find(t.Context(), 100))
	m := &message.Message{ID: "a", Topic: "other", Body: []byte("theirs")}
	answer := q.Producer().Schedule(t.Context(), []store.Request{{Message: m, When: storetest.Later()}}, true, store.Durability{})[0]
	require.NoError(t, answer.Err)
	require.Equal(t, store.Replaced, answer.Code)
	done := finish(t, run, 100)
	assert.Equal(t, job.Tally{Matched: 1, Gone: 1}, done.Tally)
	found, ok, err := inspect.Get(t.Context(), q, "a", "")
	require.NoError(t, err)
	require.True(t, ok)
	assert.Equal(t, "other", found.Topic)
}

// TestJobCountsUnreadableOnce: a message that cannot be read is met by its due time, and then by
// its name.
func TestJobCountsUnreadableOnce(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	storetest.Create(t, q, "a", storetest.Later())
	require.NoError(t, rdb.HSet(t.Context(), q.Keys().Shard(0).Msg, "a", "cut short").Err())
	done := finish(t, startJob(t, q, job.Spec{Verb: job.Reschedule, Filter: inspect.Filter{IDPrefix: "a"}, By: time.Hour}), 100)
	assert.Equal(t, job.Tally{Matched: 1, Failed: 1}, done.Tally)
	assert.Equal(t, int64(1), *done.Remaining)
}
