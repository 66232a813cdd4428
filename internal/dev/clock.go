package dev

import (
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// Clock is the clock of the Redis in this process. It runs as ours does, and can be
// moved forward. It is safe for concurrent use.
type Clock struct {
	redis *miniredis.Miniredis

	mu    sync.Mutex
	ahead time.Duration
}

func newClock(redis *miniredis.Miniredis) *Clock {
	c := &Clock{redis: redis}
	// That Redis shows a time that stands still, or ours: so each script sets it first.
	// Not each command: those inside of a script come here, too, while it is locked.
	redis.Server().SetPreHook(func(_ *server.Peer, command string, _ ...string) bool {
		if command == "EVALSHA" || command == "EVAL" {
			c.show()
		}
		return false
	})
	return c
}

// show has Redis show the time.
func (c *Clock) show() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ahead > 0 {
		c.redis.SetTime(time.Now().Add(c.ahead))
	}
}

// Now is what the clock shows; of none, our own time.
func (c *Clock) Now() time.Time {
	if c == nil {
		return time.Now()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

// MoveTo moves the clock forward to that time, unless it is past, and wakes whoever
// waits for hints: the pollers would look again within seconds only.
func (c *Clock) MoveTo(at time.Time) {
	c.mu.Lock()
	c.ahead = max(c.ahead, time.Until(at))
	c.mu.Unlock()
	c.show()
	for _, channel := range c.redis.PubSubChannels("*:wake") {
		c.redis.Publish(channel, "")
	}
}
