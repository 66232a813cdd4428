package kafka

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

const (
	// connsPerBroker limits the connections to one broker, and so how many of
	// its partitions have a request under way.
	connsPerBroker = 64
	// trustFor is how long an unused connection that shows no end is believed to be alive.
	// After that it is asked first: a request on a dead one would have an unknown outcome.
	trustFor = 10 * time.Second
	// keepFor is how long an unused connection is kept, up to as long again; brokers cut it
	// after 10 minutes.
	keepFor = time.Minute
)

// brokers holds the connections to all brokers of the cluster. A broker that is not used
// any more, as one that has another address now, is forgotten with its connections.
type brokers struct {
	opener *opener
	keep   time.Duration

	mu        sync.Mutex
	byAddress map[string]*broker
	closed    bool
	sweeper   *time.Timer // is set while there is anything to forget
	sweeping  sync.WaitGroup
}

type broker struct {
	address string
	slots   chan struct{} // one for each connection in use

	// Guarded by brokers.mu.
	users int       // that have a connection, or wait for one
	idle  []*conn   // the last one used is the last
	muted time.Time // until then the broker wants no messages
}

func newBrokers(o *opener) *brokers {
	return &brokers{opener: o, keep: keepFor, byAddress: map[string]*broker{}}
}

// acquire returns a connection for one request, to be given back by release.
// Every error is a [notStoredError].
func (b *brokers) acquire(ctx context.Context, address string) (*conn, error) {
	owner := b.enter(address)
	select {
	case owner.slots <- struct{}{}:
	case <-ctx.Done():
		b.leave(owner, nil)
		return nil, &notStoredError{fmt.Errorf("wait for a connection to kafka broker %s: %w", address, ctx.Err())}
	}
	if c := b.reuse(ctx, owner); c != nil {
		return c, nil
	}
	c, err := b.opener.open(ctx, address)
	if err != nil {
		<-owner.slots
		b.leave(owner, nil)
		return nil, err
	}
	c.owner = owner
	return c, nil
}

// reuse returns a living idle connection, or nil.
func (b *brokers) reuse(ctx context.Context, owner *broker) *conn {
	for {
		c := b.pop(owner)
		if c == nil {
			return nil
		}
		now := time.Now()
		if c.expired(now) || c.socket.ended() {
			c.close()
			continue
		}
		if now.Sub(c.usedAt) < trustFor || c.alive(ctx) {
			return c
		}
		// What one broker process did to one connection it did to all.
		c.close()
		closeAll(b.popAll(owner))
	}
}

// throttle notes for how long the broker of a connection in use wants no messages. It does
// not read a request that comes earlier, so that its answer would seem to be missing.
func (b *brokers) throttle(c *conn, pause time.Duration) {
	if pause <= 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c.owner.muted = time.Now().Add(pause)
}

// awaitQuota waits until the broker accepts messages again, but not if that
// would be after ctx has ended.
func (b *brokers) awaitQuota(ctx context.Context, address string) error {
	var muted time.Time
	b.mu.Lock()
	if owner := b.byAddress[address]; owner != nil {
		muted = owner.muted
	}
	b.mu.Unlock()
	if deadline, ok := ctx.Deadline(); (ok && muted.After(deadline)) || !wait.Sleep(ctx, time.Until(muted)) {
		return &notStoredError{fmt.Errorf("wait for the quota of kafka broker %s: %w", address, kafka.ThrottlingQuotaExceeded)}
	}
	return nil
}

// release gives a connection back.
func (b *brokers) release(c *conn) {
	b.leave(c.owner, c)
	<-c.owner.slots
}

// enter returns the broker of an address for a caller that will call leave.
func (b *brokers) enter(address string) *broker {
	b.mu.Lock()
	defer b.mu.Unlock()
	owner := b.byAddress[address]
	if owner == nil {
		owner = &broker{address: address, slots: make(chan struct{}, connsPerBroker)}
		b.byAddress[address] = owner
	}
	owner.users++
	return owner
}

// leave takes back the connection of a caller of enter, if there is one.
func (b *brokers) leave(owner *broker, c *conn) {
	b.mu.Lock()
	owner.users--
	if c != nil && !c.broken && !b.closed {
		owner.idle = append(owner.idle, c)
		c = nil
	}
	b.forget(owner, time.Now())
	b.sweepLater()
	b.mu.Unlock()
	if c != nil {
		c.close()
	}
}

// sweep closes the connections that were not used for long.
func (b *brokers) sweep() {
	defer b.sweeping.Done()
	var old []*conn
	b.mu.Lock()
	now := time.Now()
	for _, owner := range b.byAddress {
		n := 0
		for n < len(owner.idle) && now.Sub(owner.idle[n].usedAt) >= b.keep {
			n++
		}
		old = append(old, owner.idle[:n]...)
		owner.idle = slices.Delete(owner.idle, 0, n)
		b.forget(owner, now)
	}
	b.sweeper = nil
	b.sweepLater()
	b.mu.Unlock()
	closeAll(old)
}

// sweepLater schedules another sweep for the rest. Callers hold mu.
func (b *brokers) sweepLater() {
	if len(b.byAddress) > 0 && b.sweeper == nil && !b.closed {
		b.sweeping.Add(1)
		b.sweeper = time.AfterFunc(b.keep, b.sweep)
	}
}

// forget drops a broker of which nothing is left. Callers hold mu.
func (b *brokers) forget(owner *broker, now time.Time) {
	if owner.users == 0 && len(owner.idle) == 0 && !now.Before(owner.muted) {
		delete(b.byAddress, owner.address)
	}
}

func (b *brokers) pop(owner *broker) *conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	last := len(owner.idle) - 1
	if last < 0 {
		return nil
	}
	c := owner.idle[last]
	owner.idle[last] = nil
	owner.idle = owner.idle[:last]
	return c
}

func (b *brokers) popAll(owner *broker) []*conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := owner.idle
	owner.idle = nil
	return all
}

// close closes the idle connections; those in use are closed when they are released.
func (b *brokers) close() {
	b.mu.Lock()
	b.closed = true
	var all []*conn
	for _, owner := range b.byAddress {
		all = append(all, owner.idle...)
		owner.idle = nil
	}
	if b.sweeper != nil && b.sweeper.Stop() {
		b.sweeping.Done()
	}
	b.sweeper = nil
	b.mu.Unlock()
	closeAll(all)
	b.sweeping.Wait()
}

func closeAll(conns []*conn) {
	for _, c := range conns {
		c.close()
	}
}
