package store_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func clustered(t *testing.T, c *testenv.Cluster) redis.UniversalClient {
	t.Helper()
	options := groupOptions(c.Addrs()).Cluster()
	options.ClusterStateReloadInterval = time.Second
	rdb := redis.NewClusterClient(options)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func TestCluster(t *testing.T) {
	t.Parallel()
	verbsWork(t, clustered(t, testenv.StartCluster(t)), store.Durability{Replicas: 1, Timeout: soon})
}

// TestClusterPrimaryKilled kills a shard's primary, and the one after it, under
// load.
func TestClusterPrimaryKilled(t *testing.T) {
	t.Parallel()
	c := testenv.StartCluster(t)
	rdb := clustered(t, c)
	const shards = 4
	q := storetest.New(t, rdb, shards)
	l := startLoad(t, q, shards, store.Durability{Replicas: 1, Timeout: time.Second})
	l.goesOn("before", 0, 1, 2, 3)
	for range 2 {
		killed := c.KillPrimaryOf(storetest.Key(q.Name(), 0, "meta"))
		c.AwaitFailover()
		killed.Start()
		c.AwaitFailover()
		l.goesOn("with the next primary", 0, 1, 2, 3)
	}
	l.stop()
	l.check(rdb)
}

// TestSlotMigration moves a shard's slot under load, and stops in between.
func TestSlotMigration(t *testing.T) {
	t.Parallel()
	c := testenv.StartCluster(t)
	rdb := clustered(t, c)
	const shards = 4
	q := storetest.New(t, rdb, shards)
	w := startWatch(t, c.Nodes())
	l := startLoad(t, q, shards, store.Durability{Replicas: 1, Timeout: 20 * time.Second})
	l.goesOn("before", 0, 1, 2, 3)
	key := storetest.Key(q.Name(), 0, "meta")
	from := c.PrimaryOf(key)
	for range 2 { // There and on.
		migration := c.MigrateSlotOf(key)
		l.goesOn("announced", 1, 2, 3)
		require.Equal(t, 1, migration.Move(1))
		l.goesOn("some keys have moved", 1, 2, 3)
		for migration.Move(1) > 0 {
			l.goesOn("more have moved", 1)
		}
		l.goesOn("all have moved", 1, 2, 3)
		migration.Finish()
		l.goesOn("the new owner serves", 0, 1, 2, 3)
	}
	require.NotEqual(t, from.Addr(), c.PrimaryOf(key).Addr())
	l.stop()
	w.stop()
	l.undisturbed(w, 1, 2, 3)
	l.check(rdb)
}
