package membership

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

func TestLayoutIsReadWhenItMayHaveChanged(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		layout store.Layout
		epoch  string
		told   time.Duration // ago
		hinted bool
		at     time.Duration // from now
		due    bool
	}{
		"settled":        {layout: store.Layout{Epoch: "1-a"}, epoch: "1-a", at: 1},
		"no shard":       {layout: store.Layout{Epoch: "1-a"}, at: 1},
		"hint":           {layout: store.Layout{Epoch: "1-a"}, hinted: true, at: 1, due: true},
		"now and then":   {layout: store.Layout{Epoch: "1-a"}, at: 0, due: true},
		"seen":           {layout: store.Layout{Epoch: "1-a"}, epoch: "2-a", at: 1, due: true},
		"came to naught": {layout: store.Layout{Epoch: "1-a"}, epoch: "2-a", told: time.Minute, at: 1},
		"begun":          {layout: store.Layout{Epoch: "1-a", Next: 8}, at: 1, due: true},
		"not drained":    {layout: store.Layout{Epoch: "1-a", Earlier: []int{4}}, at: 1},
	} {
		noticed := false
		l := &layouts{config: &Config{}, notice: func() { noticed = true }, reloadAt: now.Add(c.at)}
		l.inUse.Store(&c.layout)
		if c.epoch != "" {
			l.sawEpoch(c.epoch)
			assert.Equal(t, c.epoch != c.layout.Epoch, noticed, name)
			l.reported.Store(&toldEpoch{epoch: c.epoch, at: now.Add(-c.told)})
		}
		assert.Equal(t, c.due, l.due(now, c.hinted), name)
	}
}

// asleep lets so much time pass on synctest's clock.
func asleep(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the clock is synctest's
	synctest.Wait()
}

// TestIdleAsksLittle counts what a member asks of Redis where nothing happens,
// and where something does.
func TestIdleAsksLittle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		redis := newFakeRedis(8)
		r := newRunning(t, redis, "a/1").run()
		asleep(5 * time.Second)
		assert.Zero(t, redis.count("layout"), "it was made at the start")
		for _, call := range []string{"heartbeat", "step", "glance"} {
			redis.count(call)
		}
		asleep(10 * time.Minute)
		assert.InDelta(t, 600, redis.count("heartbeat"), 1)
		assert.InDelta(t, 60, redis.count("layout"), 7, "every ten seconds, on the next turn")
		assert.Zero(t, redis.count("step"))
		assert.InDelta(t, 20, redis.count("glance"), 5, "about twice a minute")

		redis.set(func() { redis.layout.Next = 16 })
		r.hints()
		asleep(10 * time.Second)
		assert.InDelta(t, 10, redis.count("step"), 1, "a change is under way")
		redis.set(func() {
			redis.layout = &store.Layout{Shards: 16, Earlier: []int{8}, Epoch: "2-life-b"}
		})
		asleep(2 * time.Second)
		assert.Len(t, r.poller.polls(), 16)
		redis.count("step")
		asleep(10 * time.Second)
		assert.InDelta(t, 10, redis.count("step"), 1, "the earlier layout drains")
		redis.set(func() { redis.layout.Earlier = nil })
		r.SawEpoch("2-life-b")
		asleep(30 * time.Second)
		redis.count("step")
		asleep(10 * time.Second)
		assert.Zero(t, redis.count("step"))
		assert.Equal(t, 1, r.log.times("layout changed"))
		r.stop()
	})
}

// TestWhoKeepsTheLayout: one of the instances, and any that sees what that one does not.
func TestWhoKeepsTheLayout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		redis := newFakeRedis(8)
		a, b := newRunning(t, redis, "a/1").run(), newRunning(t, redis, "b/1").run()
		asleep(10 * time.Second)
		require.NotEqual(t, a.upkeep.mine.Load(), b.upkeep.mine.Load())
		keeper, other := a, b
		if b.upkeep.mine.Load() {
			keeper, other = b, a
		}
		redis.count("step")
		other.SawEpoch("2-life-b") // And the keeper hears nothing of it.
		asleep(2 * time.Second)
		assert.Zero(t, redis.count("step"))
		asleep(3 * time.Second)
		assert.Positive(t, redis.count("step"))
		asleep(time.Minute)
		redis.count("step")
		asleep(10 * time.Second)
		assert.Zero(t, redis.count("step"), "nothing has come of it")

		redis.set(func() { redis.err = errors.New("away") })
		redis.count("glance")
		asleep(time.Minute)
		assert.Equal(t, 1, keeper.log.times("upkeep of the layout failed"))
		redis.set(func() { redis.err = nil })
		asleep(5 * time.Second)
		assert.Equal(t, 1, keeper.log.times("upkeep of the layout works again"))
		keeper.stop()
		asleep(5 * time.Second)
		assert.True(t, other.upkeep.mine.Load())
		assert.Positive(t, redis.count("step"), "a new keeper begins with a whole step")
		other.stop()
	})
}

func TestLossIsRepaired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		redis := newFakeRedis(8)
		r := newRunning(t, redis, "a/1").run()
		asleep(5 * time.Second)
		redis.set(func() { redis.lost = []int{2, 5} })
		for range 8 { // All shards find out.
			r.NoMeta(t.Context())
		}
		assert.Equal(t, 1, redis.count("repair"))
		asleep(time.Second)
		assert.Equal(t, 1, r.log.times("event=layout_lost shards=2 which=2,5"))
		assert.Equal(t, []int{2, 1}, []int{r.seen.lost, r.reborn})

		asleep(2 * time.Second)
		redis.set(func() { redis.layout = nil })
		r.NoMeta(t.Context())
		asleep(2 * time.Second)
		assert.Equal(t, 1, r.log.times("the queue was lost and is made again"))
		assert.Equal(t, []int{2 + 8, 2}, []int{r.seen.lost, r.reborn})
		asleep(15 * time.Second)
		redis.set(func() {
			assert.Len(t, redis.losses, 2, "written down, though Redis had no room the first time")
			assert.Equal(t, []any{store.LostShards, []int{2, 5}, store.LostQueue}, []any{redis.losses[0].Kind, redis.losses[0].Shards, redis.losses[1].Kind})
			assert.Equal(t, "a", redis.losses[0].Instance)
		})
		assert.Len(t, r.poller.polls(), 8)

		redis.set(func() { redis.layout, redis.err = nil, errors.New("away") })
		asleep(10 * time.Second)
		redis.set(func() { redis.err = nil })
		asleep(40 * time.Second) // No shard tells: it polls none, say.
		assert.NotNil(t, redis.layout)
		r.stop()
	})
}

// TestLayoutIsRestored from the shards; that this fails is said once, and that it was lost is written down.
func TestLayoutIsRestored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		redis := newFakeRedis(8)
		r := newRunning(t, redis, "a/1").run()
		asleep(5 * time.Second)
		redis.set(func() { redis.layout, redis.remains, redis.errEnsure = nil, true, errors.New("redis is full") })
		for range 5 {
			r.NoMeta(t.Context())
			asleep(2 * time.Second)
		}
		assert.Equal(t, 1, r.log.times("cannot be made again yet"))
		redis.set(func() { redis.errEnsure = nil })
		asleep(30 * time.Second)
		assert.Equal(t, 1, r.log.times("restored from the shards"))
		redis.set(func() {
			require.Len(t, redis.losses, 1)
			assert.Equal(t, []any{store.LostLayout, "layout:2-life-a"}, []any{redis.losses[0].Kind, redis.losses[0].ID})
		})
		r.stop()
	})
}

// TestLossIsTold where others have made the shards again.
func TestLossIsTold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		redis := newFakeRedis(8)
		redis.born[3] = time.Now()
		r := newRunning(t, redis, "a/1").run()
		told := func(lost, reborn int, why string) {
			t.Helper()
			asleep(15 * time.Second)
			redis.set(func() { assert.Equal(t, []int{lost, reborn}, []int{r.seen.lost, r.reborn}, why) })
		}
		told(0, 0, "what was lost before nobody knows")
		redis.set(func() { redis.remake(3, 4) })
		told(2, 1, "an earlier release had made one of them")
		redis.set(func() { redis.remake() })
		told(2, 1, "another layout, and nothing was lost")

		redis.set(func() {
			redis.born = append(redis.born, time.Now(), time.Now())
			redis.layout = &store.Layout{Shards: 10, Epoch: "7-life-a"}
		})
		told(2, 1, "new shards")
		redis.set(func() {
			redis.remake(9)
			redis.born[1], redis.born[9] = time.Now(), time.Time{}
			redis.errBorn = errors.New("one is away")
		})
		told(3, 2, "those that answer")
		redis.set(func() {
			redis.born[9] = time.Now()
			redis.errBorn = nil
		})
		told(4, 3, "and the other, later")
		redis.count("born")
		told(4, 3, "once")
		assert.Zero(t, redis.count("born"), "it is not read again")
		r.stop()
	})
}

// TestCauseIsSaid: at once, and when it becomes another one.
func TestCauseIsSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		redis := newFakeRedis(8)
		dial := func(port int) error { // A read has another local port each time.
			return fmt.Errorf("load layout: %w", &net.OpError{
				Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: port}, Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 6379},
				Err: os.NewSyscallError("read", syscall.ECONNRESET),
			})
		}
		redis.err = dial(1)
		r := newRunning(t, redis, "a/1").run()
		asleep(10 * time.Millisecond)
		assert.Equal(t, 1, r.log.times(`reason="read 10.0.0.1:6379: read: connection reset by peer"`))
		for port := range 10 {
			redis.set(func() { redis.err = dial(port) })
			asleep(3 * time.Second)
		}
		assert.Equal(t, 1, r.log.times("redis unavailable"))
		redis.set(func() { redis.err = errors.New("another") })
		asleep(3 * time.Second)
		assert.Equal(t, 2, r.log.times("redis unavailable"))
		redis.set(func() { redis.err = nil })
		asleep(3 * time.Second)
		assert.Len(t, r.poller.polls(), 8)
		require.NoError(t, r.heard)
		redis.set(func() { redis.err = dial(1) })
		asleep(time.Minute)
		require.ErrorIs(t, r.heard, syscall.ECONNRESET)
		assert.Equal(t, 1, r.log.times("heartbeat failed"))
		assert.Len(t, r.poller.polls(), 8, "the leases decide")
		assert.Zero(t, r.log.times("heartbeat works again"))
		redis.set(func() { redis.err = nil })
		asleep(time.Minute)
		assert.Equal(t, 1, r.log.times("heartbeat works again"))
		r.stop()
	})
}

func TestKillAndRestartKeepTheShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		redis := newFakeRedis(32)
		a, b := newRunning(t, redis, "a/1").run(), newRunning(t, redis, "b/1").run()
		asleep(5 * time.Second)
		share := a.poller.polls()
		assert.Len(t, slices.Concat(share, b.poller.polls()), 32)
		a.kill()
		again := newRunning(t, redis, "a/2").run()
		asleep(time.Second)
		assert.Equal(t, share, again.poller.polls())
		asleep(time.Minute)
		assert.Equal(t, share, again.poller.polls())
		assert.Zero(t, b.log.times("gone=a"), "the name has never gone")
		assert.Empty(t, again.ended, "the leftover of the killed one is no reason to end")

		redis.set(func() { redis.clock = -time.Hour })
		asleep(time.Minute)
		assert.Equal(t, share, again.poller.polls())
		assert.Zero(t, b.log.times("gone=a"), "Redis' clock stepped back")
		b.stop()
		asleep(time.Second)
		assert.Len(t, again.poller.polls(), 32, "one that leaves is gone at once, whatever Redis' clock says")
		again.stop()
	})
}

func TestNameThatLivesTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		redis := newFakeRedis(8)
		first := newRunning(t, redis, "bridge-0/aaa").run()
		asleep(5 * time.Second)
		second := newRunning(t, redis, "bridge-0/bbb").run()
		asleep(5 * time.Second)
		select {
		case err := <-second.ended:
			require.ErrorIs(t, err, ErrNameTaken)
			assert.EqualError(t, err, "instance \"bridge-0\": the instance name is used by another running bridge "+
				"(boot aaa, this one is boot bbb): give each bridge its own name, or leave `instance` empty")
		default:
			t.Fatal("the second goes on")
		}
		second.Leave(t.Context())
		asleep(5 * time.Minute)
		assert.Empty(t, first.ended, "the first goes on")
		assert.Len(t, first.poller.polls(), 8)
		first.stop()
	})
}
