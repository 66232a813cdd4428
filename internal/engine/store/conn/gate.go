package conn

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
)

const (
	// maxWaiting is how many durable runs of a queue may hold a connection to one
	// node at once: Redis checks every waiting client again and again.
	maxWaiting = 256
	// probePause is the time between two runs that wait in vain.
	probePause = 250 * time.Millisecond
)

// gate keeps durable runs that wait in vain from taking all connections to a
// node, and from being slow one after the other. It leaves a part of the pool to
// calls that do not wait. After one has waited in vain, only one at a time waits,
// until a run that waits as long is confirmed again.
type gate struct {
	slots chan struct{}

	mu     sync.Mutex
	vain   time.Duration // the longest wait in vain since one was confirmed, 0 if there is none
	answer confirmation  // that run's answer
	next   time.Time     // when one may wait again
}

// gateKey is what waits that fail together have in common.
type gateKey struct {
	node     redis.UniversalClient
	replicas int
	fsync    bool
}

func (u *Confirmer) gate(node redis.UniversalClient, d Durability) *gate {
	key := gateKey{node, d.Replicas, d.Fsync}
	if g, ok := u.gates.Load(key); ok {
		return g.(*gate)
	}
	most := maxWaiting
	if client, ok := node.(*redis.Client); ok {
		most = min(most, max(client.Options().PoolSize*3/4, 1))
	}
	g, _ := u.gates.LoadOrStore(key, &gate{slots: make(chan struct{}, most)})
	return g.(*gate)
}

// Enter waits for a place among the durable runs at the node of the key; the
// place is left when the run has ended. Its error says that nothing was sent.
func (u *Confirmer) Enter(ctx context.Context, d Durability, key string) (*Place, error) {
	node, _, err := u.Node(ctx, key)
	if err != nil {
		return nil, err
	}
	g := u.gate(node, d)
	select {
	case g.slots <- struct{}{}:
		return &Place{g}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w, as too many calls wait to be durable: %w", rediserr.ErrNotSent, ctx.Err())
	}
}

// Place is a place among the durable runs at a node.
type Place struct{ gate *gate }

// Leave makes room for another run.
func (p *Place) Leave() { <-p.gate.slots }

// opens reports whether a run may wait that long. If not, it returns the
// confirmation of the run that waited in vain.
func (g *gate) opens(within time.Duration) (confirmation, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if within > g.vain {
		return confirmation{}, true
	}
	if now.Before(g.next) {
		return g.answer, false
	}
	g.next = now.Add(within + probePause)
	return confirmation{}, true
}

// learn records the result of a run that has waited that long.
func (g *gate) learn(within time.Duration, c confirmation, durable bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case durable:
		g.vain, g.next = 0, time.Time{}
	case c.err == nil && within > g.vain:
		g.vain, g.answer = within, c
	}
}
