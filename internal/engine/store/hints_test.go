package store_test

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/hints"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// ear collects the hints of one queue.
type ear struct {
	t       testing.TB
	wakes   chan int
	changes chan struct{}
}

func newEar(t testing.TB) *ear {
	return &ear{t: t, wakes: make(chan int, 1000), changes: make(chan struct{}, 1000)}
}

func (e *ear) listener() hints.Listener {
	return hints.Listener{
		Wake: func(shard int) { e.wakes <- shard }, Changed: func() { e.changes <- struct{}{} },
	}
}

// woken waits until each of the shards was woken; those of others do not count.
func (e *ear) woken(shards ...int) {
	e.t.Helper()
	missing := map[int]bool{}
	for _, shard := range shards {
		missing[shard] = true
	}
	limit := time.After(soon)
	for len(missing) > 0 {
		select {
		case shard := <-e.wakes:
			delete(missing, shard)
		case <-limit:
			require.Empty(e.t, missing, "shards not woken")
		}
	}
}

// settled waits for both changes of a new subscription, and drops what came.
func (e *ear) settled() {
	e.t.Helper()
	for range 2 {
		e.changed()
	}
	for len(e.wakes) > 0 {
		<-e.wakes
	}
}

func (e *ear) changed() {
	e.t.Helper()
	select {
	case <-e.changes:
	case <-time.After(soon):
		e.t.Fatal("no change was heard")
	}
}

func (e *ear) silent() {
	e.t.Helper()
	select {
	case shard := <-e.wakes:
		e.t.Fatal("woken: ", shard)
	case <-e.changes:
		e.t.Fatal("a change was heard")
	case <-time.After(100 * time.Millisecond):
	}
}

// listen runs hints until the end of the test.
func listen(t testing.TB, rdb redis.UniversalClient) *hints.Subscriber {
	subscriber := hints.New(rdb)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); subscriber.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case <-ended:
		case <-time.After(soon):
			t.Error("hints do not end with their ctx")
		}
	})
	return subscriber
}

// handOver takes the shard and gives it up, which is a hint.
func handOver(t testing.TB, q *store.Queue, shard int) {
	t.Helper()
	b := newBridge(t, q)
	_, err := q.Shard(shard).Claim(t.Context(), b.request(0))
	require.NoError(t, err)
	require.NoError(t, q.Shard(shard).HandOver(t.Context(), b.Instance))
}

// subscribers counts the connections that have subscribed.
func subscribers(t testing.TB, rdb *redis.Client) int {
	t.Helper()
	list, err := rdb.Do(t.Context(), "client", "list", "type", "pubsub").Text()
	require.NoError(t, err)
	return strings.Count(list, "\n")
}

// abandoned begins to watch a client's subscription; wait returns when the
// client has given it up.
func abandoned(t testing.TB, rdb *redis.Client) (wait func()) {
	t.Helper()
	before := rdb.PoolStats().PubSubStats.Untracked
	return func() {
		t.Helper()
		require.Eventually(t, func() bool { return rdb.PoolStats().PubSubStats.Untracked > before }, soon, 10*time.Millisecond)
	}
}

// TestHintsOfSeveralQueues has one connection for all of them, and keeps the
// hints of the others while one changes.
func TestHintsOfSeveralQueues(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testenvPrivate(t))
	subscriber := listen(t, rdb)
	var queues [3]*store.Queue
	var ears [3]*ear
	for i := range queues {
		queues[i], ears[i] = storetest.New(t, rdb, 4), newEar(t)
		subscriber.Set(queues[i].Keys(), []int{0, 1, 2, 3}, ears[i].listener())
		ears[i].woken(0, 1, 2, 3)
		ears[i].settled()
	}
	require.Equal(t, 1, subscribers(t, rdb), "one connection for all")
	for i, q := range queues {
		for shard := range 4 {
			handOver(t, q, shard)
			ears[i].woken(shard)
		}
		_, _, err := q.Members().Heartbeat(t.Context(), "a", time.Minute)
		require.NoError(t, err)
		ears[i].changed()
		require.NoError(t, q.Members().Leave(t.Context(), "a"))
		ears[i].changed()
	}

	subscriber.Set(queues[0].Keys(), []int{2}, ears[0].listener())
	subscriber.Set(queues[1].Keys(), nil, hints.Listener{})
	subscriber.Set(queues[2].Keys(), []int{0, 1}, ears[2].listener())
	wake := storetest.Key(queues[0].Name(), 0, "wake")
	require.Eventually(t, func() bool {
		return rdb.PubSubShardNumSub(t.Context(), wake).Val()[wake] == 0
	}, soon, 5*time.Millisecond)
	for _, e := range ears {
		e.silent() // What stays subscribed is not told anew.
	}
	for shard := range 4 {
		handOver(t, queues[0], shard)
		handOver(t, queues[1], shard)
	}
	ears[0].woken(2)
	handOver(t, queues[2], 1)
	ears[2].woken(1)
	subscriber.Set(queues[2].Keys(), []int{1, 3}, ears[2].listener())
	ears[2].woken(3)
	for _, e := range ears {
		e.silent()
	}
	require.Equal(t, 1, subscribers(t, rdb))
}

// TestHintsAfterAway wakes all that may have been missed while Redis was away.
func TestHintsAfterAway(t *testing.T) {
	t.Parallel()
	server := testenv.StartRedis(t)
	proxy := testenv.NewProxy(t, server.Addr())
	near := connect(t, server.URL())
	far := connect(t, "redis://"+proxy.Addr(), func(o *redis.Options) {
		o.DialTimeout, o.ReadTimeout, o.DialerRetries = time.Second, time.Second, 1
	})
	q, e := storetest.New(t, near, 2), newEar(t)
	listen(t, far).Set(q.Keys(), []int{0, 1}, e.listener())
	e.woken(0, 1)
	e.settled()
	for name, fault := range map[string]func(bool){
		"cut": func(on bool) {
			if on {
				proxy.Cut()
			}
		},
		"refused": func(on bool) {
			proxy.Refuse(on)
			proxy.Cut()
		},
		"silent": proxy.Blackhole,
	} {
		wait := abandoned(t, far)
		fault(true)
		handOver(t, q, 0)
		if name == "silent" {
			wait()
		}
		fault(false)
		e.woken(0, 1)
		e.settled()
		handOver(t, q, 1)
		e.woken(1)
	}
}

// TestHintsBefore7 hears them where no channel can be sharded.
func TestHintsBefore7(t *testing.T) {
	t.Parallel()
	rdb := connect(t, "redis://"+miniredis.RunT(t).Addr())
	q, e := storetest.New(t, rdb, 2), newEar(t)
	subscriber := listen(t, rdb)
	subscriber.Set(q.Keys(), []int{0, 1}, e.listener())
	e.woken(0, 1)
	e.settled()
	handOver(t, q, 1)
	e.woken(1)
	subscriber.Set(q.Keys(), []int{0}, e.listener())
	handOver(t, q, 0)
	e.woken(0)
	sharded, err := rdb.Eval(t.Context(), "return redis.REDIS_VERSION_NUM or 'none'", nil).Result()
	require.NoError(t, err)
	require.Equal(t, "none", sharded, "what the scripts go by")
}

// cluster is a Redis Cluster of three primaries without replicas.
type cluster struct {
	servers [3]*testenv.Server
	nodes   [3]*redis.Client
	ids     [3]string
	rdb     *redis.ClusterClient
}

func startCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{}
	addrs := make([]string, len(c.servers))
	for i := range c.servers {
		port := testenv.Port(t)
		c.servers[i] = testenv.StartRedis(t, "--cluster-enabled", "yes", "--cluster-port", port,
			"--cluster-node-timeout", "5000", "--cluster-require-full-coverage", "no")
		addrs[i] = c.servers[i].Addr()
		c.nodes[i] = connect(t, c.servers[i].URL())
		slots := []int{0, 5461, 10923, 16384}
		require.NoError(t, c.nodes[i].ClusterAddSlotsRange(t.Context(), slots[i], slots[i+1]-1).Err())
		c.ids[i] = c.nodes[i].Do(t.Context(), "cluster", "myid").String()
		_, c.ids[i], _ = strings.Cut(c.ids[i], ": ")
		require.NoError(t, c.nodes[0].Do(t.Context(), "cluster", "meet", "127.0.0.1", portOf(c.servers[i]), port).Err())
	}
	for _, node := range c.nodes {
		require.Eventually(t, func() bool {
			info := node.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_ok:16384") &&
				strings.Contains(info, "cluster_size:3")
		}, 4*soon, 20*time.Millisecond)
	}
	c.rdb = redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addrs, DialTimeout: time.Second, DialerRetries: 1, ReadTimeout: time.Second, WriteTimeout: time.Second,
		ContextTimeoutEnabled:    true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = c.rdb.Close() })
	return c
}

// slot is that of the shard's keys.
func (c *cluster) slot(t testing.TB, key string) int {
	t.Helper()
	slot, err := c.nodes[0].ClusterKeySlot(t.Context(), key).Result()
	require.NoError(t, err)
	return int(slot)
}

// owner is the index of the node that holds the slot, as the others see it.
func (c *cluster) owner(t testing.TB, slot int) int {
	t.Helper()
	for _, node := range c.nodes {
		shards, err := node.ClusterShards(t.Context()).Result()
		if err != nil {
			continue
		}
		for _, s := range shards {
			for i := range c.servers {
				if s.Nodes[0].ID == c.ids[i] && slices.ContainsFunc(s.Slots, func(r redis.SlotRange) bool {
					return r.Start <= int64(slot) && int64(slot) <= r.End
				}) {
					return i
				}
			}
		}
	}
	t.Fatal("nobody holds slot ", slot)
	return 0
}

// move moves the slot with its keys.
func (c *cluster) move(t testing.TB, slot, to int) {
	t.Helper()
	from := c.owner(t, slot)
	require.NotEqual(t, from, to)
	ctx, number := t.Context(), strconv.Itoa(slot)
	require.NoError(t, c.nodes[to].Do(ctx, "cluster", "setslot", number, "importing", c.ids[from]).Err())
	require.NoError(t, c.nodes[from].Do(ctx, "cluster", "setslot", number, "migrating", c.ids[to]).Err())
	keys, err := c.nodes[from].ClusterGetKeysInSlot(ctx, slot, 1000).Result()
	require.NoError(t, err)
	for _, key := range keys {
		require.NoError(t, c.nodes[from].Do(ctx, "migrate", "127.0.0.1", portOf(c.servers[to]), key, 0, 5000).Err())
	}
	for _, i := range []int{to, from, 3 - to - from} {
		require.NoError(t, c.nodes[i].Do(ctx, "cluster", "setslot", number, "node", c.ids[to]).Err())
	}
}

// TestHintsInCluster hears all shards on one connection to each node, when
// slots move, when a node hangs, and when it has died and lives again.
func TestHintsInCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	const shards = 12
	q, e := storetest.New(t, c.rdb, shards), newEar(t)
	all := make([]int, shards)
	byNode := map[int][]int{}
	for shard := range all {
		all[shard] = shard
		node := c.owner(t, c.slot(t, storetest.Key(q.Name(), shard, "wake")))
		byNode[node] = append(byNode[node], shard)
	}
	subscriber := listen(t, c.rdb)
	subscriber.Set(q.Keys(), all, e.listener())
	e.woken(all...)
	e.settled()
	each := func(shards []int) {
		t.Helper()
		for _, shard := range shards {
			handOver(t, q, shard)
			e.woken(shard)
		}
	}
	each(all)
	for i, node := range c.nodes {
		require.LessOrEqual(t, subscribers(t, node), 1, i)
	}

	moved := slices.MaxFunc(slices.Collect(maps.Values(byNode)), func(a, b []int) int { return len(a) - len(b) })
	slot := c.slot(t, storetest.Key(q.Name(), moved[0], "wake"))
	from := c.owner(t, slot)
	to := (from + 1) % 3
	c.move(t, slot, to)
	e.woken(moved[0])
	require.Equal(t, to, c.owner(t, slot))
	handOver(t, q, moved[0])
	e.woken(moved[0])
	for len(e.wakes) > 0 {
		<-e.wakes
	}

	var others []int
	for shard := range all {
		if c.owner(t, c.slot(t, storetest.Key(q.Name(), shard, "wake"))) != from {
			others = append(others, shard)
		}
	}
	hung, err := c.rdb.MasterForKey(t.Context(), storetest.Key(q.Name(), moved[1], "wake"))
	require.NoError(t, err)
	wait := abandoned(t, hung)
	c.servers[from].Pause()
	each(others)
	wait()
	each(others)
	c.servers[from].Resume()
	e.woken(moved[1:]...)
	each(moved[1:])

	c.servers[from].Kill()
	each(others)
	c.servers[from].Start()
	e.woken(moved[1:]...)
	assert.Eventually(t, func() bool {
		_, err := q.Layouts().Ensure(t.Context(), storetest.Layout(shards))
		return err == nil
	}, soon, 50*time.Millisecond)
	each(moved[1:])
}
