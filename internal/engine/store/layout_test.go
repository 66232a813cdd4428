package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

var errKilled = errors.New("killed")

// mortal is a hook that lets some commands pass and ends all later ones, as if
// the process had died in between.
type mortal struct{ left atomic.Int64 }

func (m *mortal) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m *mortal) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if m.left.Add(-1) < 0 {
			cmd.SetErr(errKilled)
			return errKilled
		}
		return next(ctx, cmd)
	}
}

func (m *mortal) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if m.left.Add(-1) < 0 {
			return errKilled
		}
		return next(ctx, cmds)
	}
}

// hookedClient hides the type of the client: one with another timeout loses the hooks.
type hookedClient struct{ redis.UniversalClient }

// again is another process that uses the queue.
func again(t testing.TB, name string, hooks ...redis.Hook) *store.Queue {
	t.Helper()
	rdb := shared(t)
	for _, hook := range hooks {
		rdb.AddHook(hook)
	}
	return store.New(hookedClient{rdb}, storetest.Prefix, name)
}

// whole dumps all shards that ever were, checks each, and that no id lives twice.
func whole(t testing.TB, rdb *redis.Client, name string, shards int) map[string]int {
	t.Helper()
	where := map[string]int{}
	for shard := range shards {
		if rdb.Exists(t.Context(), storetest.Key(name, shard, "meta")).Val() == 0 {
			continue
		}
		s, err := storetest.Dump(t.Context(), rdb, name, shard)
		require.NoError(t, err)
		require.NoError(t, s.Check(), "shard %d", shard)
		for _, ids := range []map[string]string{s.Msg, s.DeadMsg} {
			for id := range ids {
				before, twice := where[id]
				require.False(t, twice, "%q is in shards %d and %d", id, before, shard)
				where[id] = shard
			}
		}
	}
	return where
}

// producer is one writer of its own ids, who so knows what is true of each.
type producer struct {
	t      *testing.T
	q      *store.Queue
	random *rand.Rand
	ids    []string
	there  map[string]bool
}

func (p *producer) step() bool {
	id := p.ids[p.random.IntN(len(p.ids))]
	ctx, none := p.t.Context(), store.Durability{}
	there := p.there[id]
	code, want := store.Code(0), store.NotFound
	switch verb := p.random.IntN(6); verb {
	case 0, 1, 5:
		answer := p.q.Producer().Schedule(ctx, []store.Request{{Message: note(id, id), When: later()}}, verb == 5, none)[0]
		if !assert.NoError(p.t, answer.Err) {
			return false
		}
		code, want = answer.Code, store.Created
		if there {
			want = store.Waiting
			if verb == 5 {
				want = store.Replaced
			}
		}
		p.there[id] = true
	case 2:
		answer := p.q.Producer().Cancel(ctx, id, "", none)
		if !assert.NoError(p.t, answer.Err) {
			return false
		}
		if code = answer.Code; there {
			want = store.Done
		}
		p.there[id] = false
	case 3:
		answer := p.q.Producer().Reschedule(ctx, id, "", later(), none)
		if !assert.NoError(p.t, answer.Err) {
			return false
		}
		if code = answer.Code; there {
			want = store.Done
		}
	case 4:
		found, ok, err := inspect.Get(ctx, p.q, id, "")
		if !assert.NoError(p.t, err) {
			return false
		}
		if code = store.NotFound; ok {
			code = found.Code
		}
		if there {
			want = store.Waiting
		}
	}
	return assert.Equal(p.t, want, code, "%s, there: %v", id, there)
}

// TestChangeUnderLoad changes the shards again and again, killed at any step,
// while producers that know different layouts use the queue.
func TestChangeUnderLoad(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 2)
	const most = 7
	t.Cleanup(func() { storetest.Remove(context.WithoutCancel(t.Context()), rdb, q.Name(), most) })
	var (
		running   sync.WaitGroup
		stop      atomic.Bool
		producers []*producer
	)
	for n := range 4 {
		p := &producer{
			t: t, q: again(t, q.Name()), random: rand.New(rand.NewPCG(uint64(n), 1)), //nolint:gosec // reproducible
			there: map[string]bool{},
		}
		for i := range 6 {
			p.ids = append(p.ids, fmt.Sprintf("p%d-%d", n, i))
		}
		producers = append(producers, p)
		running.Go(func() {
			for more := true; more && !stop.Load(); {
				more = p.step()
			}
		})
	}
	random := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // reproducible
	keeper := layout.NewKeeper(again(t, q.Name()).Layouts(), 0)
	killed, done := 0, 0
	for range 80 {
		admin := new(mortal)
		admin.left.Store(int64(random.IntN(18)))
		_, err := again(t, q.Name(), admin).Layouts().SetShards(t.Context(), 1+random.IntN(most))
		if err != nil && !errors.Is(err, layout.ErrEarlierLayouts) {
			require.ErrorIs(t, err, errKilled)
			killed++
		} else if err == nil {
			done++
		}
		for range random.IntN(6) {
			assert.NoError(t, keeper.Step(t.Context()))
		}
		if t.Failed() {
			break
		}
	}
	stop.Store(true)
	running.Wait()
	require.False(t, t.Failed())
	require.Greater(t, killed, 3)
	require.Greater(t, done, 3)
	where := whole(t, rdb, q.Name(), most)
	total := 0
	for _, p := range producers {
		for id, there := range p.there {
			_, found := where[id]
			require.Equal(t, there, found, id)
			if there {
				total++
			}
		}
	}
	require.Len(t, where, total)
	require.Equal(t, map[string]int{}, claimAll(t, q, where))
}

// claimAll makes all messages due and takes them from all shards; it returns
// what was not found exactly once.
func claimAll(t *testing.T, q *store.Queue, want map[string]int) map[string]int {
	t.Helper()
	left := map[string]int{}
	for id := range want {
		left[id] = 1
		require.Equal(t, store.Done, reschedule(t, q, id, past()))
	}
	layout, err := q.LoadLayout(t.Context())
	require.NoError(t, err)
	for shard := range layout.Polled() {
		claim, err := q.Shard(shard).Claim(t.Context(), message.ClaimRequest{
			Token: message.ClaimToken{Instance: "a", Number: 1}, Max: 1000, Timeout: never, Lease: lease,
		})
		require.NoError(t, err)
		for _, m := range claim.Messages {
			if left[m.ID]--; left[m.ID] == 0 {
				delete(left, m.ID)
			}
		}
		_, err = q.Shard(shard).Settle(t.Context(), settlement(claim, acked))
		require.NoError(t, err)
	}
	return left
}

// TestDrains lets earlier layouts end, and keeps the sum of the counters.
func TestDrains(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 5)
	ids := map[string]int{}
	for i := range 40 {
		id := fmt.Sprint("id-", i)
		ids[id] = 1
		create(t, q, id, later())
	}
	two, err := q.Layouts().SetShards(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, []int{5}, two.Earlier)
	require.Equal(t, 5, two.Polled())
	keeper := layout.NewKeeper(q.Layouts(), 50*time.Millisecond)
	for range 5 {
		require.NoError(t, keeper.Step(t.Context()))
	}
	for shard := 2; shard < 5; shard++ {
		stats, err := inspect.NewAdmin(q).Stats(t.Context(), shard)
		require.NoError(t, err)
		require.False(t, stats.Drained)
		require.Equal(t, two.Epoch, stats.Epoch)
	}
	require.Empty(t, claimAll(t, q, ids))
	drained := false
	require.Eventually(t, func() bool {
		require.NoError(t, keeper.Step(t.Context()))
		two, err = q.LoadLayout(t.Context())
		require.NoError(t, err)
		if stats, err := inspect.NewAdmin(q).Stats(t.Context(), 0); err == nil && stats.Drained {
			drained = true
		}
		return len(two.Earlier) == 0
	}, soon, 5*time.Millisecond)
	require.True(t, drained)
	require.Equal(t, 2, two.Polled())
	published := two.Retired["published"]
	require.Positive(t, published)
	require.NotContains(t, two.Retired, layout.BornField)
	for shard := range 2 {
		stats, err := inspect.NewAdmin(q).Stats(t.Context(), shard)
		require.NoError(t, err)
		published += stats.Counters["published"]
		require.NotContains(t, stats.Counters, layout.BornField)
	}
	require.Equal(t, int64(40), published)
	for shard := 2; shard < 5; shard++ {
		require.Zero(t, rdb.Exists(t.Context(), storetest.Key(q.Name(), shard, "meta"), storetest.Key(q.Name(), shard, "holder")).Val())
	}
	create(t, q, "id-1", later())
	_, err = q.Layouts().SetShards(t.Context(), 3)
	require.NoError(t, err)
	require.Equal(t, store.Waiting, schedule(t, q, "id-1", later()).Code)
}

// TestOldHome finds, moves, redrives and purges what lives in an earlier layout.
func TestOldHome(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 1)
	t.Cleanup(func() { storetest.Remove(context.WithoutCancel(t.Context()), rdb, q.Name(), 8) })
	b := newBridge(t, q)
	var ids []string
	for i := range 12 {
		ids = append(ids, fmt.Sprint("dead-", i))
		create(t, q, ids[i], past())
	}
	b.settle(b.claim(100), buried)
	other := again(t, q.Name())
	_, err := other.Layout(t.Context())
	require.NoError(t, err)
	_, err = q.Layouts().SetShards(t.Context(), 8)
	require.NoError(t, err)

	seen := 0
	require.NoError(t, inspect.NewAdmin(other).DeadLetters(t.Context(), func(message.DeadLetter) bool { seen++; return true }))
	require.Equal(t, 12, seen)
	codes, err := inspect.NewAdmin(other).Redrive(t.Context(), append(ids[:6:6], "nobody"))
	require.NoError(t, err)
	require.Equal(t, []store.Code{7, 7, 7, 7, 7, 7, 8}, codes)
	codes, err = inspect.NewAdmin(other).Purge(t.Context(), ids[6:9])
	require.NoError(t, err)
	require.Equal(t, []store.Code{7, 7, 7}, codes)
	for _, id := range ids[:6] {
		require.Equal(t, store.Waiting, schedule(t, other, id, later()).Code)
		found, err := inspect.Find(t.Context(), other, id, 5)
		require.NoError(t, err)
		require.Equal(t, []string{id}, found)
	}
	for _, id := range ids[9:] {
		require.Equal(t, store.Dead, schedule(t, other, id, later()).Code)
		answered(t, store.Replaced, other.Producer().Schedule(t.Context(), requests(later(), id), true, store.Durability{})[0])
	}
	require.Len(t, whole(t, rdb, q.Name(), 8), 9)
}

// TestLostByFailover sets back what replicas may not have had: a fence, the
// intent of a change with all its fences, a publication, the layout's key.
func TestLostByFailover(t *testing.T) {
	t.Parallel()
	rdb := shared(t)
	q := storetest.New(t, rdb, 2)
	t.Cleanup(func() { storetest.Remove(context.WithoutCancel(t.Context()), rdb, q.Name(), 8) })
	layoutKey := storetest.Prefix + ":" + q.Name() + ":layout"
	before := rdb.HGetAll(t.Context(), layoutKey).Val()
	create(t, q, "x", later())
	epochs := func() (list []string) {
		for shard := range 5 {
			list = append(list, rdb.HGet(t.Context(), storetest.Key(q.Name(), shard, "meta"), "epoch").Val())
		}
		return list
	}
	five, err := q.Layouts().SetShards(t.Context(), 5)
	require.NoError(t, err)
	all := []string{five.Epoch, five.Epoch, five.Epoch, five.Epoch, five.Epoch}
	require.Equal(t, all, epochs())

	back := func(shard int, epoch, content string) {
		t.Helper()
		require.NoError(t, rdb.HSet(t.Context(), storetest.Key(q.Name(), shard, "meta"), "epoch", epoch, "layout", content).Err())
	}
	old := store.New(rdb, storetest.Prefix, q.Name())
	for shard := range 2 { // The callers raise it.
		back(shard, before["epoch"], "2|")
	}
	for i := range 20 {
		require.Equal(t, store.NotFound, cancel(t, old, fmt.Sprint("none-", i)))
	}
	require.Equal(t, all, epochs())
	back(1, before["epoch"], "2|") // The keeper raises it.
	require.NoError(t, q.NewKeeper().Step(t.Context()))
	require.Equal(t, all, epochs())

	// The publication is lost; a caller finishes what the fences tell of.
	require.NoError(t, rdb.Del(t.Context(), layoutKey).Err())
	require.NoError(t, rdb.HSet(t.Context(), layoutKey, before).Err())
	require.Equal(t, store.Waiting, schedule(t, store.New(rdb, storetest.Prefix, q.Name()), "x", later()).Code)
	require.Equal(t, five.Epoch, rdb.HGet(t.Context(), layoutKey, "epoch").Val())

	// The keeper does so too, where two changes of the same number met.
	require.NoError(t, rdb.HSet(t.Context(), layoutKey, before).Err())
	require.NoError(t, rdb.HDel(t.Context(), layoutKey, "earlier").Err())
	back(0, layout.NextEpoch(before["epoch"]), "7|2")
	require.NoError(t, q.NewKeeper().Step(t.Context()))
	merged, err := q.LoadLayout(t.Context())
	require.NoError(t, err)
	require.Equal(t, 7, max(merged.Polled(), merged.Shards))
	require.Subset(t, append(merged.Earlier, merged.Shards), []int{2, 5, 7})
	require.Equal(t, store.Waiting, schedule(t, old, "x", later()).Code)

	// The key is lost: the shards know the layout.
	require.NoError(t, rdb.Del(t.Context(), layoutKey).Err())
	restored, err := store.New(rdb, storetest.Prefix, q.Name()).Layouts().Ensure(t.Context(), storetest.Layout(1))
	require.NoError(t, err)
	require.Equal(t, merged.Epoch, restored.Epoch)
	require.Equal(t, merged.Shards, restored.Shards)
	require.Equal(t, merged.Earlier, restored.Earlier)
	require.Equal(t, store.Waiting, schedule(t, old, "x", later()).Code)
}

// TestSetShardsRefuses what cannot be, and does nothing where there is nothing to do.
func TestSetShardsRefuses(t *testing.T) {
	t.Parallel()
	q := storetest.New(t, shared(t), 2)
	t.Cleanup(func() { storetest.Remove(context.WithoutCancel(t.Context()), shared(t), q.Name(), 12) })
	for _, n := range []int{-1, 0, store.MaxShards + 1} {
		_, err := q.Layouts().SetShards(t.Context(), n)
		require.ErrorIs(t, err, layout.ErrShards)
	}
	before, err := q.Layout(t.Context())
	require.NoError(t, err)
	same, err := q.Layouts().SetShards(t.Context(), 2)
	require.NoError(t, err)
	require.Equal(t, before.Epoch, same.Epoch)
	for n := 3; n <= 10; n++ {
		_, err = q.Layouts().SetShards(t.Context(), n)
		require.NoError(t, err)
	}
	_, err = q.Layouts().SetShards(t.Context(), 11)
	require.ErrorIs(t, err, layout.ErrEarlierLayouts)
}

// emptier is a hook that has Redis lose the queue just before a command.
type emptier struct {
	mortal

	lose func()
}

func (e *emptier) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if e.left.Add(-1) == -1 {
			e.lose()
		}
		return next(ctx, cmd)
	}
}

// TestLostBetweenLookAndUpdate: whenever Redis loses a queue while an instance makes sure of its
// layout, there is a whole one after it.
func TestLostBetweenLookAndUpdate(t *testing.T) {
	t.Parallel()
	const shards = 2
	for left := range int64(8) {
		q := storetest.New(t, shared(t), shards)
		hook := &emptier{lose: func() {
			keys := []string{q.Keys().Layout()}
			for shard := range shards {
				keys = append(keys, q.Keys().Shard(shard).Meta)
			}
			assert.NoError(t, shared(t).Del(t.Context(), keys...).Err())
		}}
		hook.left.Store(left)
		want := store.Layout{Shards: shards, Sink: message.NATS, MaxMessage: 1000}
		made, err := again(t, q.Name(), hook).Layouts().Ensure(t.Context(), want)
		if err == nil {
			require.NotEmpty(t, made.Epoch, left)
		}
		_, err = again(t, q.Name()).Layouts().Ensure(t.Context(), want)
		require.NoError(t, err, left)
		create(t, again(t, q.Name()), fmt.Sprint("m", left), later())
	}
}
