package membership

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPausesAreHeard before the first shard is polled, within a heartbeat where a hint is
// lost, and are told once.
func TestPausesAreHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		redis := newFakeRedis(8)
		since := time.Now()
		redis.set(func() { redis.paused = map[string]time.Time{"t": since} })
		r := newRunning(t, redis, "a/1")
		r.poller.onAssign = func() { assert.Contains(t, r.poller.paused, "t") }
		r.run()
		asleep(5 * time.Second)
		require.NotEmpty(t, r.poller.polls())
		require.Equal(t, 1, r.log.times("paused=t "))

		redis.set(func() { redis.paused = map[string]time.Time{"": since, "t": since} })
		asleep(1100 * time.Millisecond)
		require.Len(t, r.poller.paused, 2)
		require.Equal(t, r.poller.paused, r.seen.paused)
		require.Equal(t, 1, r.log.times(`paused="the whole queue"`))
		redis.set(func() { redis.paused = nil })
		asleep(1100 * time.Millisecond)
		require.Empty(t, r.poller.paused)
		require.Equal(t, 1, r.log.times(`resumed="the whole queue,t"`))
		r.stop()
	})
}
