package kafka

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

const (
	// connsPerBroker bounds the connections to one broker, and so how many of
	// its partitions have a request under way.
	connsPerBroker = 64
	// trustFor is how long an unused connection that shows no end is believed to be alive.
	// After that it is asked first: a request on a dead one would have an unknown outcome.
	trustFor = 10 * time.Second
	// keepFor is how long an unused connection is kept; brokers cut it after 10 minutes.
	keepFor = time.Minute
)

// brokers holds the connections to all brokers of the cluster.
type brokers struct {
	opener *opener

	mu        sync.Mutex
	byAddress map[string]*broker
	closed    bool
}

type broker struct {
	slots chan struct{} // one for each connection in use

	// Guarded by brokers.mu.
	idle  []*conn   // the last one used is the last
	muted time.Time // until then the broker wants no messages
}

func newBrokers(o *opener) *brokers {
	return &brokers{opener: o, byAddress: map[string]*broker{}}
}

// acquire returns a connection for one request, to be given back by release.
// Every error is a [notStoredError].
func (b *brokers) acquire(ctx context.Context, address string) (*conn, error) {
	owner := b.get(address)
	select {
	case owner.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, &notStoredError{fmt.Errorf("wait for a connection to kafka broker %s: %w", address, ctx.Err())}
	}
	if c := b.reuse(ctx, owner); c != nil {
		return c, nil
	}
	c, err := b.opener.open(ctx, address)
	if err != nil {
		<-owner.slots
		return nil, err
	}
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

// throttle notes for how long a broker wants no messages. It does not read a
// request that comes earlier, so that its answer would seem to be missing.
func (b *brokers) throttle(address string, pause time.Duration) {
	if pause <= 0 {
		return
	}
	owner := b.get(address)
	b.mu.Lock()
	defer b.mu.Unlock()
	owner.muted = time.Now().Add(pause)
}

// awaitQuota waits until the broker wants messages again, but not where that
// would be after ctx has ended.
func (b *brokers) awaitQuota(ctx context.Context, address string) error {
	owner := b.get(address)
	b.mu.Lock()
	muted := owner.muted
	b.mu.Unlock()
	if deadline, ok := ctx.Deadline(); (ok && muted.After(deadline)) || !wait.Sleep(ctx, time.Until(muted)) {
		return &notStoredError{fmt.Errorf("wait for the quota of kafka broker %s: %w", address, kafka.ThrottlingQuotaExceeded)}
	}
	return nil
}

// release gives a connection back.
func (b *brokers) release(c *conn) {
	owner := b.get(c.address)
	b.mu.Lock()
	var old []*conn
	if c.broken || b.closed {
		old = append(old, c)
	} else {
		owner.idle = append(owner.idle, c)
	}
	for len(owner.idle) > 0 && time.Since(owner.idle[0].usedAt) > keepFor {
		old = append(old, owner.idle[0])
		owner.idle = owner.idle[1:]
	}
	b.mu.Unlock()
	closeAll(old)
	<-owner.slots
}

func (b *brokers) get(address string) *broker {
	b.mu.Lock()
	defer b.mu.Unlock()
	owner := b.byAddress[address]
	if owner == nil {
		owner = &broker{slots: make(chan struct{}, connsPerBroker)}
		b.byAddress[address] = owner
	}
	return owner
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
	b.mu.Unlock()
	closeAll(all)
}

func closeAll(conns []*conn) {
	for _, c := range conns {
		c.close()
	}
}
