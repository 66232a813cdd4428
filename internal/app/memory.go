package app

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/fit"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// memory watches what Redis takes of its maxmemory: each primary of a Cluster. It owns no
// goroutine.
type memory struct {
	rdb     redis.UniversalClient
	metrics *telemetry.Metrics

	mu    sync.Mutex
	nodes map[string]*growth   // by address; those that have a maxmemory
	heard map[string]time.Time // when each has answered last
}

func newMemory(rdb redis.UniversalClient, metrics *telemetry.Metrics) *memory {
	return &memory{rdb: rdb, metrics: metrics, nodes: map[string]*growth{}, heard: map[string]time.Time{}}
}

// run looks every ten seconds, until ctx ends.
func (m *memory) run(ctx context.Context) {
	for {
		m.look(ctx)
		if !wait.Sleep(ctx, growthEvery) {
			return
		}
	}
}

// look asks all primaries at once. That one does not answer is told by others; it is
// forgotten after a minute, since another may have taken its place.
func (m *memory) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, store.MaxCall)
	defer cancel()
	if cluster, ok := m.rdb.(*redis.ClusterClient); ok {
		_ = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			m.ask(ctx, node.Options().Addr, node)
			return nil
		})
	} else {
		m.ask(ctx, "", m.rdb)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for addr, last := range m.heard {
		if time.Since(last) > time.Minute {
			delete(m.heard, addr)
			delete(m.nodes, addr)
			m.metrics.NoRedisMemory(addr)
		}
	}
}

func (m *memory) ask(ctx context.Context, addr string, node redis.UniversalClient) {
	text, err := node.Info(ctx, "memory").Result()
	if err != nil {
		return
	}
	used, limit := fit.ParseInfo(text).Memory()
	m.metrics.RedisMemory(addr, used, limit)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heard[addr] = time.Now()
	if limit == 0 {
		delete(m.nodes, addr)
		return
	}
	if m.nodes[addr] == nil {
		m.nodes[addr] = &growth{}
	}
	m.nodes[addr].add(time.Now(), used, limit)
}

// room is that of the primary that is full first: then some shards take nothing more. It
// is nil where none has a maxmemory.
func (m *memory) room() (first *inspect.Room) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range m.nodes {
		if r := g.room(); first == nil || isFullBefore(r, first) {
			first = r
		}
	}
	return first
}

// isFullBefore compares two rooms; of those that do not fill, the one with less left.
func isFullBefore(a, b *inspect.Room) bool {
	switch {
	case a.FullAt.IsZero() && b.FullAt.IsZero():
		return float64(a.Used)/float64(a.Limit) > float64(b.Used)/float64(b.Limit)
	case a.FullAt.IsZero() || b.FullAt.IsZero():
		return b.FullAt.IsZero()
	}
	return a.FullAt.Before(b.FullAt)
}
