// Package clock estimates the clocks of Redis servers without asking them.
package clock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

const (
	// clockLife is how long an estimate is used to bound a run before Redis is
	// asked again.
	clockLife = 10 * time.Second
	// Ahead is how far an estimate may be ahead of Redis' clock without that having been
	// set: the clock is slewed, or several servers stand behind one address.
	Ahead = time.Second
	// step is how far a TIME may differ from the estimate without the clock having been set,
	// since replies may be late.
	step = 5 * time.Second
	// driftShare bounds how far Redis' clock may fall behind our monotonic clock:
	// by 1/1024 of the time, twice the most that NTP slews.
	driftShare = 1024
)

// Clock estimates the clock of one Redis server without asking it: the last TIME
// seen, plus the monotonic time since its reply came. The reply was sent before
// it came, so the estimate is not ahead of Redis' clock by more than its drift,
// unless that clock is set back. It is safe for concurrent use.
type Clock struct {
	seen atomic.Pointer[sighting]
}

// sighting is a TIME of Redis and when its reply came.
type sighting struct {
	redisMs int64
	at      time.Time
	since   time.Time // the clock was not set since then, as far as is known
	doubted bool      // another server may answer now
}

// Observe records a TIME of Redis whose reply came at that instant.
func (c *Clock) Observe(redisMs int64, at time.Time) {
	for {
		last, next := c.seen.Load(), &sighting{redisMs: redisMs, at: at, since: at}
		if last != nil {
			passed := at.Sub(last.at)
			off := time.Duration(redisMs-last.redisMs)*time.Millisecond - passed
			if off.Abs() <= step+passed/driftShare {
				next.since = last.since
			}
		}
		if c.seen.CompareAndSwap(last, next) {
			return
		}
	}
}

// IsSteady reports whether Redis' clock is known not to have been set for d.
func (c *Clock) IsSteady(d time.Duration) bool {
	seen := c.seen.Load()
	return seen != nil && time.Since(seen.since) >= d
}

// Learn records the TIME in the reply to a command that was sent when FloorMs was
// sentMs. The reply may have come late, so it counts only if it is ahead of the
// estimate, or shows that Redis' clock was set back.
func (c *Clock) Learn(redisMs, sentMs int64) {
	if redisMs >= c.FloorMs() || redisMs < sentMs {
		c.Observe(redisMs, time.Now())
	}
}

// NowMs is the estimate, and false if Redis has not told the time yet.
func (c *Clock) NowMs() (int64, bool) {
	seen := c.seen.Load()
	if seen == nil {
		return 0, false
	}
	return seen.redisMs + time.Since(seen.at).Milliseconds(), true
}

// FloorMs is a lower bound of Redis' clock, whatever its drift.
func (c *Clock) FloorMs() int64 {
	seen := c.seen.Load()
	if seen == nil {
		return 0
	}
	return seen.redisMs + AtLeast(time.Since(seen.at)).Milliseconds()
}

// AtLeast is the least that Redis' clock advances within d of our monotonic clock.
func AtLeast(d time.Duration) time.Duration { return d - d/driftShare }

// AtMost is the counterpart of [AtLeast].
func AtMost(d time.Duration) time.Duration { return d + d/driftShare }

// Doubt makes [Clocks.Of] ask Redis before the estimate bounds a run again:
// after a failover another server may answer, whose clock is behind.
func (c *Clock) Doubt() {
	if seen := c.seen.Load(); seen != nil && !seen.doubted {
		c.seen.CompareAndSwap(seen, &sighting{redisMs: seen.redisMs, at: seen.at, since: seen.since, doubted: true})
	}
}

// IsUsable reports whether the estimate may bound a run; otherwise ask Redis.
func (c *Clock) IsUsable() bool {
	seen := c.seen.Load()
	return seen != nil && !seen.doubted && time.Since(seen.at) < clockLife
}

// Clocks are those of the servers behind one connection: each node of a Cluster
// has its own.
type Clocks struct {
	// Queue is the clock of the only server. In a Cluster it is that of whoever has
	// told the time last, as the answer to a claim or of the layout.
	Queue Clock

	conn  *conn.Conn
	nodes sync.Map // of a Cluster: redis.UniversalClient to *Clock
}

// New returns clocks without an estimate; it does no I/O.
func New(c *conn.Conn) *Clocks { return &Clocks{conn: c} }

// Of returns the clock of the server that holds the key. It asks that server if
// the estimate cannot bound a run. After an error, nothing was sent but that
// question.
func (cs *Clocks) Of(ctx context.Context, key string) (*Clock, error) {
	node, several, err := cs.conn.Node(ctx, key)
	if err != nil {
		return nil, err
	}
	c := &cs.Queue
	if several {
		stored, _ := cs.nodes.LoadOrStore(node, new(Clock))
		c = stored.(*Clock)
	}
	if c.IsUsable() {
		return c, nil
	}
	if err := cs.ask(ctx, node, c); err != nil {
		return nil, err
	}
	return c, nil
}

// ask asks the node for the time.
func (cs *Clocks) ask(ctx context.Context, node redis.UniversalClient, c *Clock) error {
	asked := scripts.NewCommand(ctx, "time")
	err := cs.conn.Patient(ctx, node, 0).Process(ctx, asked)
	parts, errParts := asked.Int64Slice()
	switch {
	case err != nil:
		cs.conn.Refresh(ctx, err)
		return notSent(fmt.Errorf("ask for the time: %w", conn.Blame(node, err)))
	case errParts != nil || len(parts) != 2:
		return fmt.Errorf("ask for the time: %w", scripts.ErrReply)
	}
	c.Observe(parts[0]*1000+parts[1]/1000, time.Now())
	return nil
}

// notSent marks the error of what came before a run, unless it will come again.
func notSent(err error) error {
	if rediserr.Classify(err) == rediserr.Fatal {
		return err
	}
	return fmt.Errorf("%w: %w", rediserr.ErrNotSent, err)
}
