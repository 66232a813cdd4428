package store

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/store/scripts"
)

const (
	// clockLife is how long an estimate is used to bound a run before Redis is
	// asked again.
	clockLife = 10 * time.Second
	// driftShare is which share of a time by our monotonic clock Redis' clock may
	// be behind: 1/1024 is twice what NTP slews at the most.
	driftShare = 1024
)

// clock estimates the clock of one Redis server without asking it: the last TIME
// seen, plus the monotonic time since its reply came. The reply was sent before
// it came, so the estimate is not ahead of Redis' clock by more than its drift,
// unless that clock is set back. It is safe for concurrent use.
type clock struct {
	seen atomic.Pointer[sighting]
}

// sighting is a TIME of Redis and when its reply came.
type sighting struct {
	redisMs int64
	at      time.Time
	doubted bool // another server may answer by now
}

// observe takes a TIME that Redis has just told.
func (c *clock) observe(redisMs int64) {
	c.seen.Store(&sighting{redisMs: redisMs, at: time.Now()})
}

// learn takes the TIME of a reply to what was sent when floorMs was sentMs. The
// reply may have been held back: it counts where it is ahead of the estimate, or
// shows that the estimate was ahead of Redis' clock, which was set back.
func (c *clock) learn(redisMs, sentMs int64) {
	if redisMs >= c.floorMs() || redisMs < sentMs {
		c.observe(redisMs)
	}
}

// nowMs is the estimate, and false if Redis has not told the time yet.
func (c *clock) nowMs() (int64, bool) {
	seen := c.seen.Load()
	if seen == nil {
		return 0, false
	}
	return seen.redisMs + time.Since(seen.at).Milliseconds(), true
}

// floorMs is what Redis' clock has reached at the least, whatever its drift.
func (c *clock) floorMs() int64 {
	seen := c.seen.Load()
	if seen == nil {
		return 0
	}
	return seen.redisMs + slow(time.Since(seen.at)).Milliseconds()
}

// slow is how much of d, by our monotonic clock, Redis' clock goes at the least.
func slow(d time.Duration) time.Duration { return d - d/driftShare }

// doubt has Redis asked before the estimate bounds a run again: after a failover
// the server that answers may be another one, whose clock is behind.
func (c *clock) doubt() {
	if seen := c.seen.Load(); seen != nil && !seen.doubted {
		c.seen.CompareAndSwap(seen, &sighting{redisMs: seen.redisMs, at: seen.at, doubted: true})
	}
}

func (c *clock) known() bool {
	seen := c.seen.Load()
	return seen != nil && !seen.doubted && time.Since(seen.at) < clockLife
}

// clockOf is the clock of the server that holds the key: each node of a Cluster
// has its own. It asks that server where the estimate cannot bound a run. An
// error says that nothing was sent but that question.
func (q *Queue) clockOf(ctx context.Context, key string) (*clock, error) {
	node, several, err := q.conn.Node(ctx, key)
	if err != nil {
		return nil, err
	}
	c := &q.clock
	if several {
		stored, _ := q.clocks.LoadOrStore(node, new(clock))
		c = stored.(*clock)
	}
	if c.known() {
		return c, nil
	}
	asked := scripts.NewCommand(ctx, "time")
	err = q.conn.Patient(ctx, node, 0).Process(ctx, asked)
	parts, errParts := asked.Int64Slice()
	switch {
	case err != nil:
		q.conn.Refresh(ctx, err)
		return nil, notSent(fmt.Errorf("ask for the time: %w", err))
	case errParts != nil || len(parts) != 2:
		return nil, fmt.Errorf("ask for the time: %w", scripts.ErrReply)
	}
	c.observe(parts[0]*1000 + parts[1]/1000)
	return c, nil
}

// notSent marks the error of what came before a run, unless it will come again.
func notSent(err error) error {
	if rediserr.Classify(err) == rediserr.Fatal {
		return err
	}
	return fmt.Errorf("%w: %w", rediserr.ErrNotSent, err)
}
