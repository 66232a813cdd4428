package store_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// moves is an ID whose home differs between two numbers of shards.
func moves(from, to int) (id string, home, newHome int) {
	for i := 0; ; i++ {
		id = fmt.Sprint("moves-", i)
		home, newHome = layout.Home("", id, from), layout.Home("", id, to)
		if home != newHome {
			return id, home, newHome
		}
	}
}

// TestFencedBeforePublished: two producers share one ID, one knows the layout
// before the change and the other the one after it. The first must not create
// in the old home what the other has in the new one.
//
// The second raises the fence of the old home itself, on its way, where the
// change has left that out. But nobody waits for the replicas then. So a
// failover of the old home's node is played, which takes back what came after
// the publishing: what came before it was confirmed.
func TestFencedBeforePublished(t *testing.T) {
	t.Parallel()
	const shards, next = 2, 5
	rdb := shared(t)
	q := storetest.New(t, rdb, shards)
	t.Cleanup(func() { storetest.Remove(context.WithoutCancel(t.Context()), rdb, q.Name(), next) })
	id, home, newHome := moves(shards, next)
	before := again(t, q.Name())
	_, err := before.Layout(t.Context())
	require.NoError(t, err)

	layout, err := again(t, q.Name()).Layouts().SetShards(t.Context(), next)
	require.NoError(t, err)
	old := storetest.Key(q.Name(), home, "meta")
	confirmed := rdb.HGetAll(t.Context(), old).Val()

	after := again(t, q.Name())
	create(t, after, id, later())
	require.NoError(t, rdb.Del(t.Context(), old).Err())
	require.NoError(t, rdb.HSet(t.Context(), old, confirmed).Err())

	require.Equal(t, store.Waiting, schedule(t, before, id, later()).Code, "there is one already")
	require.Equal(t, map[string]int{id: newHome}, whole(t, rdb, q.Name(), next))
	require.Equal(t, store.Done, cancel(t, before, id))
	for shard := range layout.Polled() {
		require.Equal(t, layout.Epoch, rdb.HGet(t.Context(), storetest.Key(q.Name(), shard, "meta"), "epoch").Val())
	}
}

// scriptFuse is a hook that lets some scripts run, one after the other, and blocks
// all later ones.
type scriptFuse struct {
	mu   sync.Mutex
	left atomic.Int64
}

func (d *scriptFuse) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d *scriptFuse) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name == "evalsha" || name == "eval" {
			d.mu.Lock()
			defer d.mu.Unlock()
		}
		if d.left.Load() <= 0 {
			cmd.SetErr(errKilled)
			return errKilled
		}
		err := next(ctx, cmd)
		if name := cmd.Name(); err == nil && (name == "evalsha" || name == "eval") {
			d.left.Add(-1)
		}
		return err
	}
}

func (d *scriptFuse) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestBetweenIntentAndPublish: the change dies at each of its steps, and then
// producers of both layouts share one ID.
func TestBetweenIntentAndPublish(t *testing.T) {
	t.Parallel()
	const shards, next = 2, 5
	id, _, _ := moves(shards, next)
	died := map[string]int{}
	for step := int64(1); ; step++ {
		rdb := shared(t)
		q := storetest.New(t, rdb, shards)
		t.Cleanup(func() { storetest.Remove(context.WithoutCancel(t.Context()), rdb, q.Name(), next) })
		before := again(t, q.Name())
		_, err := before.Layout(t.Context())
		require.NoError(t, err)
		admin := new(scriptFuse)
		admin.left.Store(step)
		_, err = again(t, q.Name(), admin).Layouts().SetShards(t.Context(), next)
		state := changeState(t, rdb, q, next)
		died[state]++

		create(t, before, id, later())
		require.Equal(t, store.Waiting, schedule(t, again(t, q.Name()), id, later()).Code, "%s, step %d", state, step)
		require.NoError(t, again(t, q.Name()).NewKeeper().Step(t.Context()))
		after := again(t, q.Name())
		layout, errLayout := after.LoadLayout(t.Context())
		require.NoError(t, errLayout)
		if state != "not begun" {
			require.Equal(t, next, layout.Shards, "%s is finished", state)
		}
		for _, q := range []*store.Queue{before, after} {
			require.Equal(t, store.Waiting, schedule(t, q, id, later()).Code, "%s, step %d", state, step)
		}
		require.Len(t, whole(t, rdb, q.Name(), next), 1)
		require.Equal(t, store.Done, cancel(t, before, id))
		require.Equal(t, store.NotFound, cancel(t, after, id))
		if err == nil {
			break
		}
		require.ErrorIs(t, err, errKilled)
	}
	for _, state := range []string{"not begun", "intended", "some fenced", "all fenced", "published"} {
		require.Positive(t, died[state], "%s: %v", state, died)
	}
}

// changeState says how far the change has come.
func changeState(t *testing.T, rdb *redis.Client, q *store.Queue, shards int) string {
	t.Helper()
	layout, err := q.LoadLayout(t.Context())
	require.NoError(t, err)
	fenced := 0
	for shard := range shards {
		counter := rdb.HGet(t.Context(), storetest.Key(q.Name(), shard, "meta"), "epoch").Val()
		if counter != "" && counter[:2] == "2-" {
			fenced++
		}
	}
	switch {
	case layout.Shards == shards:
		require.Equal(t, shards, fenced, "published without fences")
		return "published"
	case layout.Next == 0:
		return "not begun"
	case fenced == 0:
		return "intended"
	case fenced < shards:
		return "some fenced"
	}
	return "all fenced"
}
