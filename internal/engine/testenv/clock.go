package testenv

import (
	"testing"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// Clock is the wall clock that a server of one test sees.
type Clock struct {
	t     testing.TB
	clock *service.Clock
}

// StartRedisWithClock is [StartRedis] of a server whose wall clock can be set.
func StartRedisWithClock(t testing.TB, args ...string) (*Server, *Clock) {
	t.Helper()
	server, clock, err := service.StartRedisWithClock(t.Context(), args...)
	if clock != nil {
		t.Cleanup(func() { check(t, clock.Close()) })
	}
	return private(t, server, err), &Clock{t, clock}
}

// Set has the server see a clock that is so much ahead of ours, or behind where it is
// negative.
func (c *Clock) Set(ahead time.Duration) {
	c.t.Helper()
	check(c.t, c.clock.Set(ahead))
}

// Stop has the clock that the server sees stand at an instant, until it is set or stopped again.
func (c *Clock) Stop(at time.Time) {
	c.t.Helper()
	check(c.t, c.clock.Stop(at))
}
