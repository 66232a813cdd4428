package store_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

// lose has Redis lose some shards of a queue, and all that is in them.
func lose(t *testing.T, rdb redis.UniversalClient, q *store.Queue, shards ...int) {
	t.Helper()
	for _, shard := range shards {
		for _, name := range []string{
			"due", "msg", "claims", "deadlines", "attempts", "gone", "gonettl", "dead", "deadmsg", "holder", "meta", "settled", "routes",
		} {
			require.NoError(t, rdb.Del(t.Context(), storetest.Key(q.Name(), shard, name)).Err())
		}
	}
}

// epochs are those of the shards, and of the layout.
func epochs(t *testing.T, rdb redis.UniversalClient, q *store.Queue) (list []string, inForce *store.Layout) {
	t.Helper()
	inForce, err := q.LoadLayout(t.Context())
	require.NoError(t, err)
	for shard := range inForce.InUse() {
		list = append(list, rdb.HGet(t.Context(), storetest.Key(q.Name(), shard, "meta"), "epoch").Val())
	}
	return list, inForce
}

func layoutKey(q *store.Queue) string { return storetest.Prefix + ":" + q.Name() + ":layout" }

// remakers are all who make a lost shard 0 of two again.
var remakers = map[string]func(*testing.T, redis.UniversalClient, *store.Queue) error{
	"a producer": func(t *testing.T, _ redis.UniversalClient, q *store.Queue) error {
		for i := range 8 { // Some of them have that home.
			schedule(t, q, fmt.Sprint("producer-", i), later())
		}
		return nil
	},
	"a bridge that polls": func(t *testing.T, _ redis.UniversalClient, q *store.Queue) error {
		lost, err := q.Layouts().Repair(t.Context())
		require.Equal(t, []int{0}, lost)
		return err
	},
	"the keeper": func(t *testing.T, _ redis.UniversalClient, q *store.Queue) error {
		return q.NewKeeper().Step(t.Context())
	},
	"a bridge that starts": func(t *testing.T, _ redis.UniversalClient, q *store.Queue) error {
		_, err := q.Layouts().Ensure(t.Context(), storetest.Layout(2))
		return err
	},
	"a bridge, with the layout": func(t *testing.T, rdb redis.UniversalClient, q *store.Queue) error {
		require.NoError(t, rdb.Del(t.Context(), layoutKey(q)).Err())
		_, err := q.Layouts().Ensure(t.Context(), storetest.Layout(2))
		return err
	},
}

// TestNothingComesFromBeforeALoss is I11 and I12: what was sent before Redis lost a
// shard takes no effect after it, since the tombstone that stood in its way may be
// lost, too.
func TestNothingComesFromBeforeALoss(t *testing.T) {
	t.Parallel()
	for who, remake := range remakers {
		t.Run("made again by "+who, func(t *testing.T) {
			t.Parallel()
			rdb := shared(t)
			near := storetest.New(t, rdb, 2)
			hook := new(aroundScript)
			far := again(t, near.Name(), hook)
			id := homed(2, 0)
			create(t, near, homed(2, 1), later())
			_, before := epochs(t, rdb, near)
			born, err := near.Rows().Born(t.Context())
			require.NoError(t, err)
			_, err = far.Layout(t.Context())
			require.NoError(t, err)
			for now := born[0].UnixMilli(); now == born[0].UnixMilli(); {
				now, err = redisNow(t.Context(), rdb)
				require.NoError(t, err)
			}
			*hook = func(run func() error) error { // Its fast path is late.
				o := store.Operation{ID: id, Token: rowToken(2), Target: rowToken(1)}
				answered(t, store.NotFound, near.Rows().CancelRow(t.Context(), o))
				lose(t, rdb, near, 0)
				require.NoError(t, remake(t, rdb, store.New(rdb, storetest.Prefix, near.Name())))
				return run()
			}
			answer := far.Rows().Put(t.Context(), []store.Row{{Token: rowToken(1), Message: note(id, ""), DueAt: rowDue}})[0]
			require.ErrorIs(t, answer.Err, store.ErrReload)
			_, found, err := inspect.Get(t.Context(), near, id, "")
			require.NoError(t, err)
			require.False(t, found, "it was cancelled in time")

			list, after := epochs(t, rdb, near)
			require.Equal(t, after.Epoch, list[0])
			require.NotEqual(t, before.Epoch, after.Epoch)
			require.True(t, after.SameLife(before))
			now, err := near.Rows().Born(t.Context())
			require.NoError(t, err)
			require.True(t, now[0].After(born[0]))
			require.Equal(t, born[1], now[1], "nothing was lost there")
			require.Equal(t, store.Waiting, schedule(t, near, homed(2, 1), later()).Code)
			create(t, far, id, later())
		})
	}
}

// homed is an ID whose home is that shard.
func homed(shards, home int) string {
	l := &store.Layout{Shards: shards}
	for i := 0; ; i++ {
		if id := fmt.Sprint("homed-", i); l.Home(id, "") == home {
			return id
		}
	}
}

// TestLateCallerRenewsNothing: a caller that a missing shard has refused, and that
// others have made again since, does not make another layout.
func TestLateCallerRenewsNothing(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	hook := new(aroundScript)
	late := again(t, q.Name(), hook)
	_, err := late.Layout(t.Context())
	require.NoError(t, err)
	lose(t, rdb, q, 0)
	var made []string
	*hook = func(run func() error) error {
		err := run()
		_, errRepair := q.Layouts().Repair(t.Context())
		require.NoError(t, errRepair)
		made, _ = epochs(t, rdb, q)
		return err
	}
	create(t, late, "x", later())
	list, _ := epochs(t, rdb, q)
	require.Equal(t, made, list)
}

// TestManyMeetALoss: the layouts that each of them would make become one.
func TestManyMeetALoss(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	const shards, callers = 6, 12
	q := storetest.New(t, rdb, shards)
	known := make([]*store.Queue, callers)
	for i := range known {
		known[i] = again(t, q.Name())
		_, err := known[i].Layout(t.Context())
		require.NoError(t, err)
	}
	for round := range 3 {
		lose(t, rdb, q, 0, 1, 2, 3)
		var running sync.WaitGroup
		for i, caller := range known {
			running.Go(func() {
				for n := range 6 {
					id := fmt.Sprintf("r%d-%d-%d", round, i, n)
					answer := caller.Producer().Schedule(t.Context(), requests(later(), id), false, store.Durability{})[0]
					assert.NoError(t, answer.Err)
				}
				if i%4 == 0 {
					_, err := caller.Layouts().Repair(t.Context())
					assert.NoError(t, err)
				}
			})
		}
		running.Wait()
		require.NoError(t, q.NewKeeper().Step(t.Context()))
		require.NoError(t, q.NewKeeper().Step(t.Context()))
		list, inForce := epochs(t, rdb, q)
		require.Equal(t, slices.Repeat([]string{inForce.Epoch}, shards), list)
		require.Equal(t, shards, inForce.Shards)
		require.Empty(t, inForce.Earlier)
		require.Zero(t, inForce.Next)
		for i, caller := range known {
			for n := range 6 {
				require.Equal(t, store.Waiting, schedule(t, caller, fmt.Sprintf("r%d-%d-%d", round, i, n), later()).Code)
			}
		}
	}
	whole(t, rdb, q.Name(), shards)
}

// TestRemakeBrokenOff: who makes lost shards again dies at each step.
func TestRemakeBrokenOff(t *testing.T) {
	t.Parallel()
	for step := int64(1); ; step++ {
		rdb := shared(t)
		q := storetest.New(t, rdb, 3)
		create(t, q, homed(3, 2), later())
		lose(t, rdb, q, 0, 1)
		dies := new(scriptFuse)
		dies.left.Store(step)
		_, died := again(t, q.Name(), dies).Layouts().Repair(t.Context())
		for home := range 2 {
			create(t, again(t, q.Name()), homed(3, home), later())
		}
		require.Equal(t, store.Waiting, schedule(t, again(t, q.Name()), homed(3, 2), later()).Code)
		require.NoError(t, q.NewKeeper().Step(t.Context()))
		list, inForce := epochs(t, rdb, q)
		require.Equal(t, slices.Repeat([]string{inForce.Epoch}, 3), list, "step %d", step)
		if died == nil {
			require.Greater(t, step, int64(4))
			return
		}
		require.ErrorIs(t, died, errKilled)
	}
}

// shardOutage is a hook of a client that does not reach one shard.
type shardOutage struct {
	tag string
	off atomic.Bool
}

func (d *shardOutage) DialHook(next redis.DialHook) redis.DialHook { return next }

func (d *shardOutage) hides(cmd redis.Cmder) error {
	if d.off.Load() || !strings.Contains(fmt.Sprint(cmd.Args()), d.tag) {
		return nil
	}
	err := &net.OpError{Op: "dial", Err: errKilled}
	cmd.SetErr(err)
	return err
}

func (d *shardOutage) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := d.hides(cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

func (d *shardOutage) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) (err error) {
		var rest []redis.Cmder
		for _, cmd := range cmds {
			if hidden := d.hides(cmd); hidden != nil {
				err = hidden
			} else {
				rest = append(rest, cmd)
			}
		}
		return errors.Join(err, next(ctx, rest))
	}
}

// TestLossBesideADeadNode: a shard that is not reached hinders nobody who makes
// another one again, or finishes what somebody else has begun.
func TestLossBesideADeadNode(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*testing.T, *store.Queue, redis.Hook){
		"a producer": func(t *testing.T, q *store.Queue, hidden redis.Hook) {
			create(t, again(t, q.Name(), hidden), homed(3, 0), later())
		},
		"a bridge": func(t *testing.T, q *store.Queue, hidden redis.Hook) {
			lost, err := again(t, q.Name(), hidden).Layouts().Repair(t.Context())
			require.NoError(t, err)
			require.Equal(t, []int{0}, lost)
		},
		"a bridge that dies": func(t *testing.T, q *store.Queue, hidden redis.Hook) {
			dies := new(scriptFuse)
			dies.left.Store(3) // It has loaded the layout twice, and made the shard.
			_, err := again(t, q.Name(), hidden, dies).Layouts().Repair(t.Context())
			require.ErrorIs(t, err, errKilled)
			list, inForce := epochs(t, shared(t), q)
			require.NotEqual(t, inForce.Epoch, list[0])
			require.NotEmpty(t, list[0])
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rdb := shared(t)
			q := storetest.New(t, rdb, 3)
			hidden := &shardOutage{tag: "{" + q.Name() + ":2}"}
			lose(t, rdb, q, 0)
			begin(t, q, hidden)
			other := again(t, q.Name(), hidden)
			schedule(t, other, homed(3, 0), later())
			create(t, other, homed(3, 1), later())
			list, inForce := epochs(t, rdb, q)
			require.Equal(t, inForce.Epoch, list[0])
			require.Equal(t, inForce.Epoch, list[1])
			require.NotEqual(t, inForce.Epoch, list[2])
			hidden.off.Store(true)
			create(t, other, homed(3, 2), later())
			list, after := epochs(t, rdb, q)
			require.Equal(t, slices.Repeat([]string{inForce.Epoch}, 3), list)
			require.Equal(t, inForce.Epoch, after.Epoch)
		})
	}
}

// TestLossDuringChange: the change makes the lost shard again.
func TestLossDuringChange(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 2)
	t.Cleanup(func() { storetest.Remove(context.WithoutCancel(t.Context()), rdb, q.Name(), 5) })
	dies := new(scriptFuse)
	dies.left.Store(3) // It has read and intended, and bound a shard perhaps.
	_, err := again(t, q.Name(), dies).Layouts().SetShards(t.Context(), 5)
	require.ErrorIs(t, err, errKilled)
	lose(t, rdb, q, 0, 1)
	create(t, again(t, q.Name()), homed(2, 0), later())
	list, inForce := epochs(t, rdb, q)
	require.Equal(t, 5, inForce.Shards)
	require.Equal(t, slices.Repeat([]string{inForce.Epoch}, 5), list)
}

// TestFenceMakesNothing: whoever raises a fence, and comes when the shard is lost
// meanwhile, does not make it again: its epoch may have been in use before.
func TestFenceMakesNothing(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	_, inForce := epochs(t, rdb, q)
	require.NoError(t, rdb.HSet(t.Context(), layoutKey(q), "epoch", layout.NextEpoch(inForce.Epoch)).Err())
	hook := new(aroundScript)
	late := again(t, q.Name(), hook)
	*hook = func(load func() error) error {
		*hook = func(fence func() error) error {
			lose(t, rdb, q, 0)
			return fence()
		}
		return load()
	}
	require.NoError(t, late.NewKeeper().Step(t.Context()))
	list, inForce := epochs(t, rdb, q)
	require.Equal(t, []string{""}, list)
	require.NoError(t, late.NewKeeper().Step(t.Context()))
	list, after := epochs(t, rdb, q)
	require.Equal(t, []string{after.Epoch}, list)
	require.NotEqual(t, inForce.Epoch, after.Epoch)
}
