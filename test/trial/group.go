package trial

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/delaybridge/delaybridge/internal/engine/testenv/service"
)

// poolSize is how many connections the producers may have; groupPool is for a
// group's nodes, each: where a replica is missing, each call that waits for it
// holds a connection for a second.
const (
	poolSize  = 100
	groupPool = 1000
)

// Group is a Redis of several servers that replace each other: a primary with
// two replicas, watched by Sentinel, or a Cluster of three primaries with a
// replica each.
type Group struct {
	sentinel *service.Sentinel
	cluster  *service.Cluster
}

// silentLogger is a logger: go-redis would print each dial of a dead node.
type silentLogger struct{}

// Printf implements go-redis' logger.
func (silentLogger) Printf(context.Context, string, ...any) {}

func startGroup(ctx context.Context, mode string) (g *Group, err error) {
	g = &Group{}
	if mode == "cluster" {
		g.cluster, err = service.StartCluster(ctx)
	} else {
		g.sentinel, err = service.StartSentinel(ctx)
	}
	if err != nil {
		return nil, err
	}
	return g, nil
}

// config is the section of a configuration.
func (g *Group) config() string {
	list := func(addrs []string) string { return `["` + strings.Join(addrs, `", "`) + `"]` }
	if g.cluster != nil {
		return "{mode: cluster, addrs: " + list(g.cluster.Addrs()) + "}"
	}
	return fmt.Sprintf("{mode: sentinel, master: %s, sentinels: %s}", service.SentinelMaster, list(g.sentinel.Addrs()))
}

// client is what a producer uses; dial is as for [World.RedisBy].
func (g *Group) client(dial Dialer) redis.UniversalClient {
	options := &redis.UniversalOptions{
		DialTimeout: 2 * time.Second, DialerRetries: 1, ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second,
		ContextTimeoutEnabled: true, DisableIdentity: true, PoolSize: groupPool, Dialer: dial,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if g.cluster == nil {
		options.MasterName, options.Addrs = service.SentinelMaster, g.sentinel.Addrs()
		return redis.NewFailoverClient(options.Failover())
	}
	options.Addrs = g.cluster.Addrs()
	cluster := options.Cluster()
	cluster.ClusterStateReloadInterval = time.Second
	return redis.NewClusterClient(cluster)
}

// Replicas is how many a primary has.
func (g *Group) Replicas() int {
	if g.cluster != nil {
		return 1
	}
	return 2
}

// Nodes are the servers that hold data, whatever their role.
func (g *Group) Nodes() []*service.Server {
	if g.cluster != nil {
		return g.cluster.Nodes()
	}
	return g.sentinel.Nodes()
}

func (g *Group) primaryOf(ctx context.Context, key string) (*service.Server, error) {
	if g.cluster != nil {
		return g.cluster.PrimaryOf(ctx, key)
	}
	return g.sentinel.Primary(ctx)
}

// Primary is the address of the one that has the key, as those name it who may be asked.
func (g *Group) Primary(ctx context.Context, key string) (string, error) {
	node, err := g.primaryOf(ctx, key)
	if err != nil {
		return "", err
	}
	return node.Addr(), nil
}

// AwaitFailover returns when all nodes that run agree on their roles, and the
// replicas among them are in sync.
func (g *Group) AwaitFailover(ctx context.Context) error {
	if g.cluster != nil {
		return g.cluster.AwaitFailover(ctx)
	}
	return g.sentinel.AwaitFailover(ctx)
}

// Migrate begins to move the slot of the key to another primary of a Cluster.
func (g *Group) Migrate(ctx context.Context, key string) (*service.Migration, error) {
	slot, err := g.cluster.Slot(ctx, key)
	if err != nil {
		return nil, err
	}
	return g.cluster.MigrateSlot(ctx, slot, nil)
}

func (g *Group) close() {
	if g.cluster != nil {
		g.cluster.Close()
	} else {
		g.sentinel.Close()
	}
}
