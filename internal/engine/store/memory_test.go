package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// TestMemoryLimit fills a Redis that has a limit: schedule says so, and all
// that drains it goes on.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testenvPrivate(t, "--maxmemory", "12mb", "--maxmemory-policy", "noeviction"))
	q := remember(t, storetest.New(t, rdb, 1).WithLedger(func(int) {}), history)
	b := newBridge(t, q)

	// Some that are dead before it is full, and one that is overdue.
	for i := range 4 {
		create(t, q, fmt.Sprint("dead-", i), past())
	}
	b.settle(b.claim(10), buried)
	var rows []store.Row
	for n := range 4 {
		rows = append(rows, store.Row{Token: rowToken(n), Message: note(fmt.Sprint("row-", n), "b"), DueAt: rowDue})
	}
	putAll(t, q, rows[:3], store.Created)
	outbox := b.claim(10)
	putAll(t, q, []store.Row{{Token: rowToken(12), Message: note("far", "b"), DueAt: farAhead}}, store.Created)
	create(t, q, "overdue", past())
	request := b.request(1)
	request.Timeout = 0
	overdue, err := q.Shard(0).Claim(t.Context(), request)
	require.NoError(t, err)
	require.Len(t, overdue.Messages, 1)

	filled := fill(t, rdb, q)
	full := func() {
		t.Helper()
		for _, replace := range []bool{false, true} {
			requests := []store.Request{{Message: note("one-more", strings.Repeat("x", 1000)), When: later()}}
			answer := q.Producer().Schedule(t.Context(), requests, replace, store.Durability{})[0]
			require.ErrorIs(t, answer.Err, store.ErrFull)
		}
		require.ErrorIs(t, q.Rows().Put(t.Context(), rows[3:])[0].Err, store.ErrFull)
	}

	t.Log(filled, "messages fill it")
	steps := []struct {
		name string
		do   func()
	}{
		{"heartbeat", func() {
			_, _, err := q.Members().Heartbeat(t.Context(), b.Instance, never)
			require.NoError(t, err)
		}},
		{"rate", func() { taken(t, q, ofQueue(10, 1)) }},
		{"reclaim", func() {
			n, _, err := q.Shard(0).Reclaim(t.Context(), message.Reclaim{Instance: b.Instance})
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}},
		{"stale settle", func() {
			stale, err := q.Shard(0).Settle(t.Context(), settlement(overdue, acked))
			require.NoError(t, err)
			require.True(t, stale)
		}},
		{"renew", func() { b.claim(0) }},
		{"settle of outbox messages", func() { b.settle(outbox, acked) }},
		{"cancel of a row, not there", func() {
			answered(t, store.NotFound, q.Rows().CancelRow(t.Context(), store.Operation{ID: "row-8", Token: rowToken(18), Target: rowToken(8)}))
		}},
		{"reschedule of a row, not there", func() {
			answered(t, store.NotFound, q.Rows().RescheduleRow(t.Context(), store.Operation{ID: "row-9", Token: rowToken(19), Target: rowToken(9)}, rowDue))
		}},
		{"reschedule of a row", func() {
			answered(t, store.Done, q.Rows().RescheduleRow(t.Context(), store.Operation{ID: "far", Token: rowToken(20), Target: rowToken(12)}, rowDue))
		}},
		{"put of one that has ended", func() { putAll(t, q, rows[:3], store.EndedPublished) }},
		{"ledger", func() {
			told, err := q.Rows().Settled(t.Context(), 0, 100)
			require.NoError(t, err)
			require.Len(t, told, 3)
			require.NoError(t, q.Rows().ForgetFates(t.Context(), 0, told))
		}},
		{"retry", func() { b.settle(b.claim(1), retried) }},
		{"release", func() { b.settle(b.claim(1), released) }},
		{"unknown", func() { b.settle(b.claim(1), unknown) }},
		{"dead letter", func() { b.settle(b.claim(1), buried) }},
		{"reschedule", func() { require.Equal(t, store.Done, reschedule(t, q, "fill-5", later())) }},
		{"reschedule of a dead one", func() { require.Equal(t, store.Done, reschedule(t, q, "dead-0", past())) }},
		{"redrive", func() {
			codes, err := inspect.NewAdmin(q).Redrive(t.Context(), []string{"dead-1"})
			require.NoError(t, err)
			require.Equal(t, []store.Code{store.Done}, codes)
		}},
		{"durable", func() { // What makes WAIT count is a write, too.
			answer := q.Producer().Reschedule(t.Context(), "fill-5", "", later(), store.Durability{Replicas: 1, Timeout: time.Millisecond})
			answered(t, store.Done, answer)
			require.ErrorContains(t, answer.Missing, "0 of 1 replicas")
		}},
		{"hand over", func() { require.NoError(t, q.Shard(0).HandOver(t.Context(), b.Instance)) }},
		{"claim anew", func() { b.claim(0) }},
		{"get", func() {
			_, ok, err := inspect.Get(t.Context(), q, "fill-6", "")
			require.NoError(t, err)
			require.True(t, ok)
		}},
	}
	for _, step := range steps {
		full()
		t.Log(step.name)
		step.do()
	}
	// Those that free memory.
	require.Equal(t, store.Done, cancel(t, q, "fill-7"))
	codes, err := inspect.NewAdmin(q).Purge(t.Context(), []string{"dead-2"})
	require.NoError(t, err)
	require.Equal(t, []store.Code{store.Done}, codes)

	for {
		claim := b.claim(100)
		if len(claim.Messages) == 0 {
			break
		}
		b.settle(claim, acked)
	}
	create(t, q, "after", later())
	sound(t, rdb, q)
}

// fill schedules due messages until Redis is full, and then until it does not
// even take a small one, with some ids of their own for each verb.
func fill(t *testing.T, rdb *redis.Client, q *store.Queue) int {
	t.Helper()
	n := 0
	for _, size := range []int{20_000, 1_000, 1} {
		for {
			r := []store.Request{{Message: note(fmt.Sprint("fill-", n), strings.Repeat("x", size)), When: past()}}
			answer := q.Producer().Schedule(t.Context(), r, false, store.Durability{})[0]
			if errors.Is(answer.Err, store.ErrFull) {
				break
			}
			require.NoError(t, answer.Err)
			n++
			require.Less(t, n, 100_000)
		}
	}
	info := rdb.InfoMap(t.Context(), "memory").Val()
	t.Log(info["Memory"]["used_memory"], info["Memory"]["maxmemory"])
	// A margin, since the buffers of connections come and go.
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "8mb").Err())
	return n
}
