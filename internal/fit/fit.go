package fit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/check"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
)

// tagsTried is how many keys are tried to find one of every primary.
const tagsTried = 4096

// Check looks at every primary that the client reaches.
func Check(ctx context.Context, rdb redis.UniversalClient, want Want) []check.Finding {
	nodes, err := nodesOf(ctx, rdb, want)
	if err != nil {
		return []check.Finding{failed("", err)}
	}
	all := make([]observation, len(nodes))
	var looking sync.WaitGroup
	for i, n := range nodes {
		looking.Go(func() { all[i] = n.look(ctx, want) })
	}
	looking.Wait()
	var findings []check.Finding
	for _, s := range all {
		findings = append(findings, s.findings...)
	}
	if !slices.ContainsFunc(findings, func(f check.Finding) bool { return IsOut(f) || f.Code == "redis_denied" && f.Level == check.Error }) {
		findings = append(findings, queueKeys(ctx, rdb, want)...)
	}
	findings = append(findings, apart(all)...)
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		findings = append(findings, slots(ctx, cluster)...)
	}
	return findings
}

// IsOut reports whether a finding says that Redis does not answer, or is another
// one than the configuration says, so that no queue can be looked at.
func IsOut(f check.Finding) bool {
	return slices.Contains([]string{"redis_unreachable", "redis_login", "redis_mode", "redis_tls"}, f.Code)
}

// nodesOf finds the primaries, and a key of ours on each: one that a shard of a queue could
// have, and none has.
func nodesOf(ctx context.Context, rdb redis.UniversalClient, want Want) ([]node, error) {
	queue := keys.Queue{Prefix: want.Prefix, Name: "check"}
	if len(want.Queues) > 0 {
		queue.Name = want.Queues[0]
	}
	at := func(i int) node {
		shard := queue.Shard(i)
		return node{key: strings.TrimSuffix(shard.Meta, "meta") + "check", channel: shard.Wake}
	}
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		n := at(0)
		n.UniversalClient = rdb
		if client, ok := rdb.(*redis.Client); ok && client.Options().Addr != "FailoverClient" {
			n.addr = client.Options().Addr
		}
		return []node{n}, nil
	}
	byAddr := map[string]node{}
	for i := range tagsTried {
		n := at(i)
		master, err := cluster.MasterForKey(ctx, n.key)
		if err != nil {
			return nil, err
		}
		n.addr, n.UniversalClient = master.Options().Addr, master
		if _, known := byAddr[n.addr]; !known {
			byAddr[n.addr] = n
		}
	}
	return slices.Collect(maps.Values(byAddr)), nil
}

// apart is the finding of nodes whose clocks differ.
func apart(all []observation) []check.Finding {
	var offs []time.Duration
	for _, s := range all {
		if s.hasClock {
			offs = append(offs, s.off)
		}
	}
	if len(offs) < 2 || slices.Max(offs)-slices.Min(offs) <= check.MaxSkew {
		return nil
	}
	return []check.Finding{{
		Level: check.Warning, Code: "clock_skew",
		What:   fmt.Sprintf("the clocks of the nodes are up to %v apart", (slices.Max(offs) - slices.Min(offs)).Round(time.Millisecond)),
		Why:    "a message is due by the clock of the node that has its shard, and a failover changes that clock",
		Remedy: "run an NTP client on each: `chronyc tracking` shows how far it is off",
	}}
}

// slots is whether the Cluster serves all its slots.
func slots(ctx context.Context, cluster *redis.ClusterClient) []check.Finding {
	text, err := cluster.ClusterInfo(ctx).Result()
	if err != nil {
		return nil // The documented user may not ask; each node was asked by itself.
	}
	info := ParseInfo(text)
	return found(when(info["cluster_state"] != "ok", check.Finding{
		Level: check.Error, Code: "redis_cluster",
		What:   fmt.Sprintf("cluster_state is %s: %s of 16384 slots are served", info["cluster_state"], info["cluster_slots_ok"]),
		Why:    "the shards in the others stand still, and with cluster-require-full-coverage all of them",
		Remedy: "redis-cli --cluster check HOST:PORT, then redis-cli --cluster fix HOST:PORT",
	}))
}

// Sentinel looks at one sentinel. It returns the address that it has for the
// primary, to be compared with what the others say.
func Sentinel(ctx context.Context, sentinel *redis.SentinelClient, addr, master string) (primary string, findings []check.Finding) {
	answer, err := sentinel.GetMasterAddrByName(ctx, master).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return "", []check.Finding{{
			Level: check.Error, Code: "sentinel_master", Subject: addr,
			What:   "this sentinel watches no master " + master,
			Why:    "it cannot say where the primary is",
			Remedy: "correct redis.master (redis-cli -p 26379 SENTINEL MASTERS), or SENTINEL MONITOR " + master + " HOST PORT QUORUM",
		}}
	case err != nil:
		f := failed(addr, err)
		f.Level, f.Code = check.Warning, strings.Replace(f.Code, "redis_", "sentinel_", 1)
		f.Why = "one less to ask where the primary is"
		f.Remedy = "correct redis.sentinels, sentinel_username and sentinel_password, or start it"
		return "", []check.Finding{f}
	}
	if err := sentinel.CkQuorum(ctx, master).Err(); err != nil && redis.HasErrorPrefix(err, "NOQUORUM") {
		findings = append(findings, check.Finding{
			Level: check.Error, Code: "sentinel_quorum", Subject: addr,
			What:   err.Error(),
			Why:    "nobody is promoted when the primary dies",
			Remedy: "start the sentinels that are missing, three at the least, or SENTINEL SET " + master + " quorum N",
		})
	}
	return strings.Join(answer, ":"), findings
}
