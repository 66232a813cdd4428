package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// replicated are a primary and its replica.
func replicated(t *testing.T) (replica *testenv.Server, rdb *redis.Client) {
	t.Helper()
	primary := testenv.StartRedis(t, "--repl-diskless-sync-delay", "0")
	replica = testenv.StartRedis(t, "--replicaof", "127.0.0.1 "+portOf(primary))
	rdb = connect(t, primary.URL())
	inSync(t, rdb)
	return replica, rdb
}

// TestConfirm: a claim is confirmed once a replica has it, by whichever
// connection it was made, and never where Redis has lost it.
func TestConfirm(t *testing.T) {
	t.Parallel()
	replica, rdb := replicated(t)
	q := storetest.New(t, rdb, 2).WithDurability(store.ByReplicas(1))
	b := newBridge(t, q)
	create(t, q, "x", past())
	create(t, q, "y", past())
	replica.Pause()
	claim := b.claim(1)
	require.ErrorContains(t, q.Shard(0).Confirm(t.Context(), claim.Token), "not confirmed: 0 of 1 replicas did")
	whys, err := q.Unconfirmed(t.Context())
	require.NoError(t, err)
	require.Len(t, whys, 2)
	for _, why := range whys {
		require.ErrorContains(t, why, "0 of 1 replicas")
	}

	replica.Resume()
	require.Eventually(t, func() bool {
		return q.Shard(0).Confirm(t.Context(), claim.Token) == nil
	}, soon, 10*time.Millisecond)
	onReplica, err := connect(t, replica.URL()).HExists(t.Context(), storetest.Key(q.Name(), 0, "claims"), claim.Token.String()).Result()
	require.NoError(t, err)
	require.True(t, onReplica)
	require.Eventually(t, func() bool {
		whys, err = q.Unconfirmed(t.Context())
		return err == nil && slices.Equal(whys, make([]error, 2))
	}, soon, 10*time.Millisecond)

	other := b.claim(1)
	require.NoError(t, rdb.HDel(t.Context(), storetest.Key(q.Name(), 0, "claims"), other.Token.String()).Err())
	require.ErrorContains(t, q.Shard(0).Confirm(t.Context(), other.Token), "lost the claim")
}

// TestConfirmNotPossible says why, at once, and the claim lives on.
func TestConfirmNotPossible(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 1).WithDurability(store.ByFsync()) // It has no append-only file.
	create(t, q, "x", past())
	b := newBridge(t, q)
	claim := b.claim(1)
	require.ErrorIs(t, q.Shard(0).Confirm(t.Context(), claim.Token), store.ErrNoFsync)
	whys, err := q.Unconfirmed(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, whys[0], store.ErrNoFsync)
	b.settle(claim, acked)
}

// TestRowsAreConfirmed: a row is told nothing that a failover may take back, and
// the same call is answered once the replica is back.
func TestRowsAreConfirmed(t *testing.T) {
	t.Parallel()
	replica, rdb := replicated(t)
	q := storetest.New(t, rdb, 1).WithDurability(store.ByReplicas(1))
	rows := q.Rows()
	put := func(n int, id string, due time.Time) store.Answer {
		return rows.Put(t.Context(), []store.Row{{Token: rowToken(n), Message: note(id, "the row's"), DueAt: due}})[0]
	}
	operation := func(n int, id string) store.Operation {
		return store.Operation{ID: id, Token: rowToken(100 + n), Target: rowToken(n)}
	}
	calls := map[string]func() store.Answer{
		"put":        func() store.Answer { return put(1, "put", farAhead) },
		"there":      func() store.Answer { return put(2, "there", farAhead) },
		"cancel":     func() store.Answer { return rows.CancelRow(t.Context(), operation(3, "cancel")) },
		"reschedule": func() store.Answer { return rows.RescheduleRow(t.Context(), operation(4, "reschedule"), rowDue) },
		"in flight":  func() store.Answer { return rows.CancelRow(t.Context(), operation(5, "in flight")) },
		"not found":  func() store.Answer { return rows.CancelRow(t.Context(), operation(6, "not found")) },
	}
	wants := map[string]store.Code{
		"put": store.Mine, "there": store.Mine, "cancel": store.Done, "reschedule": store.Done,
		"in flight": store.InFlight, "not found": store.NotFound,
	}
	there := func(n int, id string, due time.Time) { // On a busy machine a replica needs longer than a call waits.
		require.Eventually(t, func() bool { return put(n, id, due).Err == nil }, soon, 10*time.Millisecond, id)
	}
	there(2, "there", farAhead)
	there(3, "cancel", farAhead)
	there(4, "reschedule", farAhead)
	there(5, "in flight", rowDue)
	newBridge(t, q).claim(1)
	replica.Pause()
	for name, call := range calls {
		require.ErrorIs(t, call().Err, store.ErrNotDurable, name)
	}
	replica.Resume()
	inSync(t, rdb)
	for name, call := range calls {
		var answer store.Answer
		require.Eventually(t, func() bool {
			answer = call()
			return answer.Err == nil
		}, soon, 10*time.Millisecond, name)
		require.Equal(t, wants[name], answer.Code, name)
	}
}

// TestConfirmOnDisk: a claim is confirmed once it is written to disk.
func TestConfirmOnDisk(t *testing.T) {
	t.Parallel()
	needsFsync(t)
	rdb := connect(t, testenv.StartRedis(t, "--appendonly", "yes", "--appendfsync", "no").URL())
	q := storetest.New(t, rdb, 1).WithDurability(store.ByFsync())
	create(t, q, "x", past())
	b := newBridge(t, q)
	claim := b.claim(1)
	require.ErrorContains(t, q.Shard(0).Confirm(t.Context(), claim.Token), "not confirmed: redis has not written it to disk yet")
	require.NoError(t, rdb.ConfigSet(t.Context(), "appendfsync", "always").Err())
	require.Eventually(t, func() bool {
		return q.Shard(0).Confirm(t.Context(), claim.Token) == nil
	}, soon, 10*time.Millisecond)
	b.settle(claim, acked)
}
