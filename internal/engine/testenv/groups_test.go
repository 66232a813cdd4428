package testenv_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

const groupTimeout = 60 * time.Second

func universal(t *testing.T, cluster bool, options redis.UniversalOptions) redis.UniversalClient {
	t.Helper()
	options.ContextTimeoutEnabled = true
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	var client redis.UniversalClient
	if cluster {
		o := options.Cluster()
		o.ClusterStateReloadInterval = time.Second
		client = redis.NewClusterClient(o)
	} else {
		client = redis.NewFailoverClient(options.Failover())
	}
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	s := testenv.StartSentinel(t)
	require.Len(t, s.Addrs(), 3)
	client := universal(t, false, redis.UniversalOptions{Addrs: s.Addrs(), MasterName: s.Master()})
	require.NoError(t, client.Set(t.Context(), "k", "v", 0).Err())
	require.EqualValues(t, 2, client.Do(t.Context(), "wait", 2, 4000).Val())

	killed := s.KillPrimary()
	s.AwaitFailover()
	require.NotEqual(t, killed.Addr(), s.Primary().Addr())
	require.Eventually(t, func() bool { return client.Get(t.Context(), "k").Val() == "v" }, groupTimeout, 20*time.Millisecond)
	require.Eventually(t, func() bool { return client.Set(t.Context(), "k", "w", 0).Err() == nil }, groupTimeout, 20*time.Millisecond)

	killed.Start()
	s.AwaitFailover()
	require.NotEqual(t, killed.Addr(), s.Primary().Addr(), "it came back as a replica")
	require.EqualValues(t, 2, client.Do(t.Context(), "wait", 2, 4000).Val())
	require.Equal(t, "w", redisClient(t, killed).Get(t.Context(), "k").Val())
}

func TestClusterFailsOver(t *testing.T) {
	t.Parallel()
	c := testenv.StartCluster(t)
	require.Len(t, c.Addrs(), 6)
	client := universal(t, true, redis.UniversalOptions{Addrs: c.Addrs()})
	for _, key := range []string{"a", "b", "c", "d"} { // They are on all primaries.
		require.NoError(t, client.Set(t.Context(), key, "v", 0).Err())
	}
	require.NotEqual(t, c.PrimaryOf("a").Addr(), c.PrimaryOf("b").Addr())

	killed := c.KillPrimaryOf("a")
	c.AwaitFailover()
	require.NotEqual(t, killed.Addr(), c.PrimaryOf("a").Addr())
	require.Eventually(t, func() bool { return client.Set(t.Context(), "a", "w", 0).Err() == nil }, groupTimeout, 20*time.Millisecond)

	killed.Start()
	c.AwaitFailover()
	require.NotEqual(t, killed.Addr(), c.PrimaryOf("a").Addr(), "it came back as a replica")
	require.Equal(t, "w", client.Get(t.Context(), "a").Val())
}

func TestSlotMigrates(t *testing.T) {
	t.Parallel()
	c := testenv.StartCluster(t)
	client := universal(t, true, redis.UniversalOptions{Addrs: c.Addrs()})
	keys := []string{"{x}1", "{x}2", "{x}3"}
	for _, key := range keys {
		require.NoError(t, client.Set(t.Context(), key, "v", 0).Err())
	}
	from := c.PrimaryOf("{x}1")
	migration := c.MigrateSlotOf("{x}1")
	require.Equal(t, from.Addr(), c.PrimaryOf("{x}1").Addr(), "not yet moved")
	require.Equal(t, 1, migration.Move(1))

	// In between: some keys here and some there.
	at := redisClient(t, from)
	err := at.MGet(t.Context(), keys...).Err()
	require.True(t, redis.HasErrorPrefix(err, "TRYAGAIN"), "%v", err)
	require.Equal(t, "v", client.Get(t.Context(), "{x}1").Val())

	require.Equal(t, 2, migration.Move(10))
	require.Zero(t, migration.Move(10))
	migration.Finish()
	c.AwaitFailover()
	require.NotEqual(t, from.Addr(), c.PrimaryOf("{x}1").Addr())
	err = at.Get(t.Context(), "{x}1").Err()
	require.True(t, redis.HasErrorPrefix(err, "MOVED"), "%v", err)
	for _, key := range keys {
		require.Equal(t, "v", client.Get(t.Context(), key).Val())
	}
}

func redisClient(t *testing.T, s *testenv.Server) *redis.Client {
	t.Helper()
	options, err := redis.ParseURL(s.URL())
	require.NoError(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
}
