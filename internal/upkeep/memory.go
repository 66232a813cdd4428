package upkeep

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

// Memory watches how much of its maxmemory Redis uses, on each primary of a Cluster.
type Memory struct {
	rdb     redis.UniversalClient
	metrics *telemetry.Metrics

	mu         sync.Mutex
	nodes      map[string]*Growth   // by address; those that have a maxmemory
	lastAnswer map[string]time.Time // when each last answered
}

// NewMemory returns a Memory that has not looked yet.
func NewMemory(rdb redis.UniversalClient, metrics *telemetry.Metrics) *Memory {
	return &Memory{rdb: rdb, metrics: metrics, nodes: map[string]*Growth{}, lastAnswer: map[string]time.Time{}}
}

// Run looks every ten seconds, until ctx ends.
func (m *Memory) Run(ctx context.Context) {
	for {
		m.Look(ctx)
		if !wait.Sleep(ctx, growthEvery) {
			return
		}
	}
}

// Look asks all primaries at once. A primary that does not answer is reported
// elsewhere, and forgotten after a minute, since another may have taken its place.
func (m *Memory) Look(ctx context.Context) {
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
	for addr, last := range m.lastAnswer {
		if time.Since(last) > time.Minute {
			delete(m.lastAnswer, addr)
			delete(m.nodes, addr)
			m.metrics.NoRedisMemory(addr)
		}
	}
}

func (m *Memory) ask(ctx context.Context, addr string, node redis.UniversalClient) {
	text, err := node.Info(ctx, "memory").Result()
	if err != nil {
		return
	}
	used, limit := fit.ParseInfo(text).Memory()
	m.metrics.RedisMemory(addr, used, limit)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lastAnswer[addr] = time.Now()
	if limit == 0 {
		delete(m.nodes, addr)
		return
	}
	if m.nodes[addr] == nil {
		m.nodes[addr] = &Growth{}
	}
	m.nodes[addr].Add(time.Now(), used, limit)
}

// Room returns that of the primary that will be full first, since its shards accept
// nothing then. It is nil if none has a maxmemory.
func (m *Memory) Room() *inspect.Room {
	m.mu.Lock()
	defer m.mu.Unlock()
	rooms := make([]*inspect.Room, 0, len(m.nodes))
	for _, g := range m.nodes {
		rooms = append(rooms, g.Room())
	}
	return FullFirst(rooms...)
}

// FullFirst returns the room that will be full first; if none fills up, the one with
// the greatest share in use; nil if there is none.
func FullFirst(rooms ...*inspect.Room) (first *inspect.Room) {
	for _, room := range rooms {
		if first == nil || isFullBefore(room, first) {
			first = room
		}
	}
	return first
}

func isFullBefore(a, b *inspect.Room) bool {
	switch {
	case a.FullAt.IsZero() && b.FullAt.IsZero():
		return float64(a.Used)/float64(a.Limit) > float64(b.Used)/float64(b.Limit)
	case a.FullAt.IsZero() || b.FullAt.IsZero():
		return b.FullAt.IsZero()
	}
	return a.FullAt.Before(b.FullAt)
}
