package app

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// meta is the key of a shard's meta.
func (f *fleet) meta(shard int) string { return fmt.Sprintf("%s:{orders:%d}:meta", f.prefix, shard) }

// set changes the number of shards and waits until they are held.
func (f *fleet) set(shards int, live ...string) {
	f.t.Helper()
	_, err := f.queue.Layouts().SetShards(f.t.Context(), shards)
	require.NoError(f.t, err)
	f.shards = shards
	f.held(live...)
}

// forgets waits until no message is where an earlier layout would have it, and
// makes that long ago, so that the earlier layouts end.
func (f *fleet) forgets() {
	f.t.Helper()
	layout, err := f.queue.LoadLayout(f.t.Context())
	require.NoError(f.t, err)
	require.NotEmpty(f.t, layout.Earlier)
	require.Eventually(f.t, func() bool {
		for shard := range layout.InUse() {
			if stats, err := inspect.NewAdmin(f.queue).Stats(f.t.Context(), shard); err != nil || !stats.Drained {
				return false
			}
		}
		return true
	}, time.Minute, 20*time.Millisecond, "drained")
	for shard := range layout.InUse() {
		require.NoError(f.t, f.rdb.HSet(f.t.Context(), f.meta(shard), "drained", layout.Epoch+" 1").Err())
	}
	require.Eventually(f.t, func() bool {
		layout, err := f.queue.LoadLayout(f.t.Context())
		return err == nil && len(layout.Earlier) == 0
	}, time.Minute, 20*time.Millisecond, "forgotten")
}

// TestChangesOfShardsAreQuiet changes the number of shards up and down, until
// shards are dropped: nothing of that is a trouble, and the log says what is.
func TestChangesOfShardsAreQuiet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testenv.Redis(t), 4)
	f.join("a", f.redis)
	f.join("b", f.redis)
	f.held("a", "b")
	for _, shards := range []int{16, 64, 4} {
		f.send()
		f.set(shards, "a", "b")
	}
	f.all()
	f.forgets()
	for name, log := range f.logs {
		require.Eventually(t, func() bool {
			return len(log.of("have drained and are forgotten")) == 1 && len(log.of("shards assigned")) >= 4
		}, time.Minute, 10*time.Millisecond, name)
	}
	require.Eventually(t, func() bool {
		return len(f.rdb.Keys(t.Context(), f.prefix+":{orders:*}:meta").Val()) == 4
	}, time.Minute, 10*time.Millisecond, "dropped")
	f.send()
	f.all()
	f.leave("a")
	f.leave("b")
	for name, log := range f.logs {
		assert.Empty(t, log.troubles("redis_check", "start"), name)
		// Where both have made the queue at the same time, it may have had a second epoch at once.
		isFirst := func(line string) bool { return strings.HasSuffix(line, "earlier=") }
		assert.Len(t, slices.DeleteFunc(log.of("layout changed "), isFirst), 3, name)
		assert.Empty(t, log.of("lapsed=1"), name)
		for _, shards := range []int{16, 64} {
			changed := log.first("layout changed .* shards=%d ", shards)
			assigned := log.first("shards assigned .* of=%d ", shards)
			assert.Less(t, changed, assigned, "%s: new shards are polled once they are in use", name)
			assert.Less(t, assigned, math.MaxInt, "%s: and no sooner", name)
		}
	}
}

// TestDroppedShardIsQuiet drops a shard before the bridge hears of it.
func TestDroppedShardIsQuiet(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testenv.Redis(t), 4)
	f.join("a", f.redis)
	f.held("a")
	f.set(2, "a")
	layoutKey := f.prefix + ":orders:layout"
	require.NoError(t, f.rdb.HDel(t.Context(), layoutKey, "earlier").Err()) // As forget does, but silently.
	require.NoError(t, f.rdb.Del(t.Context(), f.meta(2), f.meta(3)).Err())
	require.Eventually(t, func() bool {
		return len(f.logs["a"].of("lost=2,3")) == 1
	}, time.Minute, 10*time.Millisecond)
	f.leave("a")
	assert.Empty(t, f.logs["a"].troubles("redis_check", "start"))
	assert.Zero(t, f.rdb.Exists(t.Context(), f.meta(2), f.meta(3)).Val(), "not made again")
}

// TestLossIsLoud takes shards, the layout, and all away from running bridges:
// that is said once, and repaired.
func TestLossIsLoud(t *testing.T) {
	t.Parallel()
	f := newFleet(t, testenv.StartRedis(t).URL(), 6)
	f.join("a", f.redis)
	f.join("b", f.redis)
	f.held("a", "b")
	before, err := f.queue.LoadLayout(t.Context())
	require.NoError(t, err)
	said := func(text string) (times int) {
		for _, log := range f.logs {
			times += len(log.of(text))
		}
		return times
	}

	f.lose(append(f.shardKeys(2), f.shardKeys(5)...)...)
	f.held("a", "b")
	for name, log := range f.logs { // Whichever has made them again.
		require.Eventually(t, func() bool { return len(log.of("redis has lost shards")) == 1 }, time.Minute, 10*time.Millisecond, name)
	}
	f.send()
	renewed, err := f.queue.LoadLayout(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, before.Epoch, renewed.Epoch)

	f.lose(f.prefix + ":orders:layout")
	require.Eventually(t, func() bool { return said("restored from the shards") > 0 }, time.Minute, 10*time.Millisecond)
	layout, err := f.queue.LoadLayout(t.Context())
	require.NoError(t, err)
	require.Equal(t, renewed.Epoch, layout.Epoch)
	f.send()
	f.all()

	require.NoError(t, f.rdb.FlushAll(t.Context()).Err())
	for name, log := range f.logs {
		require.Eventually(t, func() bool { return len(log.of("the queue was lost and is made again")) == 1 },
			time.Minute, 10*time.Millisecond, name)
	}
	f.held("a", "b")
	f.send()
	f.all()
	f.leave("a")
	f.leave("b")
	for name, log := range f.logs {
		for _, text := range []string{"redis has lost shards", "restored from the shards", "the queue was lost"} {
			assert.LessOrEqual(t, len(log.of(text)), 1, "%s: %s", name, text)
		}
		for _, trouble := range log.troubles("redis_check", "layout_lost", "settle") {
			t.Errorf("%s: %s", name, trouble)
		}
	}
}

// shardKeys are all keys of a shard that there are.
func (f *fleet) shardKeys(shard int) []string {
	return f.rdb.Keys(f.t.Context(), fmt.Sprintf("%s:{orders:%d}:*", f.prefix, shard)).Val()
}

func (f *fleet) lose(keys ...string) {
	f.t.Helper()
	require.NotEmpty(f.t, keys)
	require.NoError(f.t, f.rdb.Del(f.t.Context(), keys...).Err())
}
