package dev

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestClock moves the clock of the Redis in this process: scripts see it, it runs on,
// never goes back, and whoever waits for hints is woken.
func TestClock(t *testing.T) {
	t.Parallel()
	server, rdb := newMini(t)
	shown := func() time.Time {
		parts, err := rdb.Eval(t.Context(), "return redis.call('TIME')", nil).StringSlice()
		require.NoError(t, err)
		d, err := time.ParseDuration(parts[0] + "s" + parts[1] + "us")
		require.NoError(t, err)
		return time.Unix(0, int64(d))
	}
	clock := server.clock
	assert.WithinDuration(t, time.Now(), shown(), timeout)
	hints := rdb.Subscribe(t.Context(), "delay:{q:0}:wake")
	defer func() { _ = hints.Close() }()
	_, err := hints.Receive(t.Context()) // It is subscribed.
	require.NoError(t, err)

	far := time.Now().Add(30 * 24 * time.Hour)
	clock.MoveTo(far)
	select {
	case <-hints.Channel():
	case <-time.After(timeout):
		t.Fatal("nobody was woken")
	}
	first := shown()
	assert.WithinDuration(t, far, first, timeout)
	assert.False(t, first.Before(far.Truncate(time.Microsecond)))
	clock.MoveTo(time.Now())
	require.Eventually(t, func() bool { return shown().After(first) }, timeout, time.Millisecond)
	assert.WithinDuration(t, clock.Now(), shown(), timeout)
}
