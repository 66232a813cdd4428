package rights_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/rights"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestCluster has a slot on its way from node to node, and then leaves out what a Cluster
// needs beside.
func TestCluster(t *testing.T) {
	t.Parallel()
	group := testenv.StartCluster(t)
	var nodes []*redis.Client
	for _, addr := range group.Addrs() {
		node := redis.NewClient(&redis.Options{Addr: addr})
		t.Cleanup(func() { _ = node.Close() })
		nodes = append(nodes, node)
	}
	onAll := func(command string) {
		words := []any{}
		for word := range strings.FieldsSeq(command) {
			words = append(words, word)
		}
		for _, node := range nodes {
			require.NoError(t, node.Do(t.Context(), words...).Err())
			require.NoError(t, node.ACLLogReset(t.Context()).Err())
		}
	}
	denied := func() (objects []string) {
		for _, node := range nodes {
			entries, err := node.ACLLog(t.Context(), 100).Result()
			require.NoError(t, err)
			for _, entry := range entries {
				objects = append(objects, entry.Object)
			}
		}
		return objects
	}
	open := func() *store.Queue {
		rdb := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: group.Addrs(), Username: "bridge", Password: password, ClientName: "life", DisableIdentity: true,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
		t.Cleanup(func() { _ = rdb.Close() })
		return store.New(rdb, "delay", main)
	}
	onAll(rights.For(rights.Bridge, rights.Setup{Prefix: "delay", Queues: []string{main}, Cluster: true}).SetUser("bridge", password))
	q := open()
	_, err := q.Layouts().Ensure(t.Context(), store.Layout{Shards: 3, Sink: message.RabbitMQ, MaxMessage: message.DefaultMaxSize})
	require.NoError(t, err)
	require.NoError(t, schedule(t.Context(), q, later, "a", "b", "c", "d"))
	_, _, err = q.Members().Heartbeat(t.Context(), "bridge", time.Hour)
	require.NoError(t, err)
	migration := group.MigrateSlotOf(q.Keys().Shard(0).Meta)
	require.Positive(t, migration.Move(1000))
	_, err = inspect.NewAdmin(q).Counters(t.Context(), []string{"scheduled"})
	require.NoError(t, err)
	assert.Empty(t, denied())

	for _, left := range []string{"asking", "cluster|slots", "command"} {
		onAll("acl setuser bridge -" + left)
		q := open()
		_, _ = q.LoadLayout(t.Context()) // The logs tell.
		_, _ = inspect.NewAdmin(q).Counters(t.Context(), []string{"scheduled"})
		assert.Contains(t, denied(), left)
		onAll("acl setuser bridge +" + left)
	}
	migration.Finish()
}
