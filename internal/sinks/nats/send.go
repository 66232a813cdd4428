package nats

import (
	"context"
	"strconv"
	"time"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

const (
	// grace is how long a call may still be in the client after its ctx ended,
	// before the connection is broken off to get it out of a blocked write.
	grace = time.Second
	// runMost is how many messages a call hands over before another has its turn.
	runMost = 64
	// crowded is how long a flight waits where the connection has too much in flight.
	crowded = 10 * time.Millisecond
	// expiryParts is how often in a publish timeout a call looks for what is overdue.
	expiryParts = 4
)

// run hands over what may be handed over, until all messages have an outcome,
// the connection ends, or ctx does.
func (c *call) run(ctx context.Context) {
	number, prefix := c.connection.acks.add(c)
	defer c.connection.acks.remove(number)
	defer c.connection.guard(ctx)()
	err := c.loop(ctx, prefix)
	c.end(err, ctx.Err() == nil)
}

// loop returns nil when nothing is left, else why the rest has no outcome.
func (c *call) loop(ctx context.Context, prefix string) error {
	l := c.connection
	expiry := time.NewTicker(max(l.timeout/expiryParts, time.Millisecond))
	defer expiry.Stop()
	w := sender{prefix: prefix, reply: make([]byte, 0, len(prefix)+8)}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		left, turn, retry := c.next()
		if left == 0 {
			return nil
		}
		select {
		case turn <- struct{}{}:
			if err := w.send(c); err != nil {
				return err
			}
		case <-c.wake:
		case <-retry:
		case <-expiry.C:
			if err := c.expire(); err != nil {
				l.abort(err)
				return l.Err()
			}
		case <-l.down:
			return l.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// next says how many messages have no outcome, and what to wait for in order to
// hand over: the turn, or that the connection has less in flight.
func (c *call) next() (left int, turn chan<- struct{}, retry <-chan time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(c.ready) == 0:
		return c.left, nil, nil
	case c.connection.pace.waiting.Load() >= inFlightMost:
		return c.left, nil, time.After(crowded)
	default:
		return c.left, c.connection.pace.turn, nil
	}
}

// sender hands the messages of one call to the client.
type sender struct {
	prefix string
	reply  []byte
	writer writer
}

// send hands over a run of messages, and then gives the turn back. It returns
// errors that are not about one message: nothing may follow.
func (s *sender) send(f *call) error {
	l := f.connection
	defer func() { <-l.pace.turn }()
	last := -1
	for range runMost {
		i, ok := f.begin(last)
		if !ok {
			return nil
		}
		last = i
		s.reply = strconv.AppendInt(append(s.reply[:0], s.prefix...), int64(i), 10)
		err := l.nc.PublishMsg(s.writer.encode(&f.batch[i], string(s.reply)))
		if err == nil {
			continue
		}
		outcome := classify(err)
		if outcome.Class == sinks.Permanent {
			f.refused(i, outcome)
			continue
		}
		l.abort(err) // part of it may be in the client's buffer
		outcome.Whole = true
		f.refused(i, outcome)
		return l.Err()
	}
	f.begun(last)
	return nil
}

// begun ends the handing over of the last message of a run.
func (c *call) begun(last int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.entries[last].since = c.connection.pace.clock()
}

// guard watches a call whose ctx has ended: the client heeds no ctx while it
// writes. The call releases it when it is over.
func (c *connection) guard(ctx context.Context) (release func()) {
	released, ended := make(chan struct{}), make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-released:
		case <-c.down:
		case <-timer.C:
			c.abort(context.Cause(ctx))
		}
	})
	return func() {
		close(released)
		if !stop() {
			<-ended
		}
	}
}
