package service

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"
)

const (
	clusterPrimaries = 3
	clusterSlots     = 16384
)

// Cluster is a Redis Cluster of three primaries with a replica each. Its
// methods may be called concurrently.
type Cluster struct {
	nodes []*Server // the primaries first, as they were at the start
}

// StartCluster starts the six servers, deals the slots out and returns when
// all agree and the replicas are in sync. A dead primary is noticed after two
// seconds. The config lines are appended to those of the nodes.
func StartCluster(ctx context.Context, config ...string) (*Cluster, error) {
	c := &Cluster{}
	if err := c.start(ctx, config); err != nil {
		err = fmt.Errorf("start cluster: %w; its log:\n%s", err, c.Log())
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, config []string) error {
	for range 2 * clusterPrimaries {
		node, err := newClusterNode(ctx, config)
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, node)
	}
	if err := startAll(ctx, c.nodes); err != nil {
		return err
	}
	for i, node := range c.nodes {
		if err := c.introduce(ctx, i, node); err != nil {
			return fmt.Errorf("introduce %s: %w", node.Addr(), err)
		}
	}
	for i := range clusterPrimaries {
		if err := c.attach(ctx, c.nodes[i], c.nodes[clusterPrimaries+i]); err != nil {
			return err
		}
	}
	return c.AwaitFailover(ctx)
}

// newClusterNode reserves the port of the cluster's bus, too: the usual one,
// 10,000 above, may belong to somebody else.
func newClusterNode(ctx context.Context, config []string) (*Server, error) {
	node, err := newRedisNode(ctx, "cluster", dataConfig(append([]string{
		"cluster-enabled yes", "cluster-config-file nodes.conf",
		"cluster-node-timeout 2000", "cluster-replica-validity-factor 0", "cluster-allow-replica-migration no",
	}, config...)...))
	if err != nil {
		return nil, err
	}
	if err := node.reserveBus(); err != nil {
		return node.abandon(err)
	}
	node.argv = append(node.argv, "--cluster-port", strconv.Itoa(node.bus))
	return node, nil
}

// introduce gives a node its own epoch and slots, and makes it known.
func (c *Cluster) introduce(ctx context.Context, i int, node *Server) error {
	return node.ask(ctx, func(ctx context.Context, client *redis.Client) error {
		if err := client.Do(ctx, "cluster", "set-config-epoch", i+1).Err(); err != nil {
			return err
		}
		if i < clusterPrimaries {
			from, to := i*clusterSlots/clusterPrimaries, (i+1)*clusterSlots/clusterPrimaries-1
			if err := client.ClusterAddSlotsRange(ctx, from, to).Err(); err != nil {
				return err
			}
		}
		if i == 0 {
			return nil
		}
		return client.Do(ctx, "cluster", "meet", c.nodes[0].host.IP, c.nodes[0].port, c.nodes[0].bus).Err()
	})
}

// attach makes the second node a replica of the first, once it knows it.
func (c *Cluster) attach(ctx context.Context, primary, replica *Server) error {
	id, err := nodeID(ctx, primary)
	if err != nil {
		return err
	}
	return await(ctx, "meeting", func(ctx context.Context) error {
		return replica.ask(ctx, func(ctx context.Context, client *redis.Client) error {
			return client.ClusterReplicate(ctx, id).Err()
		})
	})
}

func nodeID(ctx context.Context, node *Server) (id string, err error) {
	err = node.ask(ctx, func(ctx context.Context, client *redis.Client) error {
		id, err = client.ClusterMyID(ctx).Result()
		return err
	})
	return id, err
}

// Addrs are the addresses of all nodes.
func (c *Cluster) Addrs() []string { return addrs(c.nodes) }

// Nodes are all nodes, whatever their present role.
func (c *Cluster) Nodes() []*Server { return c.nodes }

// PrimaryOf is the node that holds the key's slot, as a running node sees it.
func (c *Cluster) PrimaryOf(ctx context.Context, key string) (*Server, error) {
	slot, err := c.Slot(ctx, key)
	if err != nil {
		return nil, err
	}
	return c.primaryOfSlot(ctx, slot)
}

func (c *Cluster) primaryOfSlot(ctx context.Context, slot int) (*Server, error) {
	view, err := viewOf(ctx, running(c.nodes)[0])
	if err != nil {
		return nil, err
	}
	for _, r := range view {
		if r.Start <= slot && slot <= r.End {
			return byAddr(c.nodes, r.Nodes[0].Addr)
		}
	}
	return nil, fmt.Errorf("nobody holds slot %d", slot)
}

// FamilyOf are the node that holds the key's slot, and its replicas.
func (c *Cluster) FamilyOf(ctx context.Context, key string) ([]*Server, error) {
	slot, err := c.Slot(ctx, key)
	if err != nil {
		return nil, err
	}
	view, err := viewOf(ctx, running(c.nodes)[0])
	if err != nil {
		return nil, err
	}
	var family []*Server
	for _, r := range view {
		if slot < r.Start || slot > r.End {
			continue
		}
		for _, node := range r.Nodes {
			server, err := byAddr(c.nodes, node.Addr)
			if err != nil {
				return nil, err
			}
			family = append(family, server)
		}
	}
	return family, nil
}

// Slot is the key's.
func (c *Cluster) Slot(ctx context.Context, key string) (slot int, err error) {
	err = running(c.nodes)[0].ask(ctx, func(ctx context.Context, client *redis.Client) error {
		n, err := client.ClusterKeySlot(ctx, key).Result()
		slot = int(n)
		return err
	})
	return slot, err
}

// Primaries are the nodes that hold slots, as a running node sees it.
func (c *Cluster) Primaries(ctx context.Context) ([]*Server, error) {
	view, err := viewOf(ctx, running(c.nodes)[0])
	if err != nil {
		return nil, err
	}
	var primaries []*Server
	for _, r := range view {
		node, err := byAddr(c.nodes, r.Nodes[0].Addr)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(primaries, node) {
			primaries = append(primaries, node)
		}
	}
	return primaries, nil
}

// KillPrimaryOf kills the node that holds the key and returns it, for
// [Server.Start].
func (c *Cluster) KillPrimaryOf(ctx context.Context, key string) (*Server, error) {
	primary, err := c.PrimaryOf(ctx, key)
	if err != nil {
		return nil, err
	}
	return primary, primary.Kill()
}

// AwaitFailover returns when all nodes that run agree on who holds which slot,
// those hold them, and the others that run follow them, one that came back
// among them.
func (c *Cluster) AwaitFailover(ctx context.Context) error {
	return await(ctx, "agreement of the cluster", c.check)
}

func (c *Cluster) check(ctx context.Context) error {
	live := running(c.nodes)
	var first []redis.ClusterSlot
	for i, node := range live {
		if err := stateOK(ctx, node); err != nil {
			return err
		}
		view, err := viewOf(ctx, node)
		if err != nil {
			return err
		}
		if i == 0 {
			first = view
		}
		if !sameOwners(first, view) {
			return fmt.Errorf("%s sees other owners than %s", node.Addr(), live[0].Addr())
		}
		if err := complete(view, live); err != nil {
			return fmt.Errorf("as %s sees it: %w", node.Addr(), err)
		}
	}
	return inSync(ctx, live, first)
}

func stateOK(ctx context.Context, node *Server) error {
	info, err := node.clusterInfo(ctx)
	if err == nil && (info["cluster_state"] != "ok" || info["cluster_slots_ok"] != strconv.Itoa(clusterSlots)) {
		err = fmt.Errorf("%s: state %s, %s slots", node.Addr(), info["cluster_state"], info["cluster_slots_ok"])
	}
	return err
}

// complete checks that the view names the running nodes and no other.
func complete(view []redis.ClusterSlot, live []*Server) error {
	seen := map[string]bool{}
	for _, r := range view {
		for _, node := range r.Nodes {
			seen[node.Addr] = true
			if !slices.Contains(addrs(live), node.Addr) {
				return fmt.Errorf("%s is named, but down", node.Addr)
			}
		}
	}
	if len(seen) != len(live) {
		return fmt.Errorf("%d nodes are named, %d run", len(seen), len(live))
	}
	return nil
}

// inSync checks that the replicas which the view names follow their primaries.
func inSync(ctx context.Context, live []*Server, view []redis.ClusterSlot) error {
	for _, r := range view {
		for _, replica := range r.Nodes[1:] {
			node, err := byAddr(live, replica.Addr)
			if err != nil {
				return err
			}
			if err := node.follows(ctx, r.Nodes[0].Addr); err != nil {
				return err
			}
		}
	}
	return nil
}

// Log returns the end of the logs of all nodes.
func (c *Cluster) Log() string { return logs(c.nodes) }

// Close kills all nodes and removes their folders.
func (c *Cluster) Close() {
	for _, node := range c.nodes {
		node.Close()
	}
}
