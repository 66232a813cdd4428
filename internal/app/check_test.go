package app

import (
	"bytes"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestCheckCluster looks at each primary, not at any one.
func TestCheckCluster(t *testing.T) {
	t.Parallel()
	bounds := []int{0, 8192, 16384}
	var servers [2]*testenv.Server
	var nodes [2]*redis.Client
	for i := range servers {
		busPort := testenv.Port(t)
		servers[i] = testenv.StartRedis(t, "--cluster-enabled", "yes", "--cluster-port", busPort, "--maxmemory-policy", "noeviction")
		nodes[i] = redis.NewClient(&redis.Options{Addr: servers[i].Addr()})
		t.Cleanup(func() { _ = nodes[i].Close() })
		require.NoError(t, nodes[i].ClusterAddSlotsRange(t.Context(), bounds[i], bounds[i+1]-1).Err())
		_, port, err := net.SplitHostPort(servers[i].Addr())
		require.NoError(t, err)
		require.NoError(t, nodes[0].Do(t.Context(), "cluster", "meet", "127.0.0.1", port, busPort).Err())
	}
	rdb, err := NewRedis(parse(t, redisOnly, `{mode: cluster, addrs: ["`+servers[0].Addr()+`"]}`).Redis, "test")
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	require.Equal(t, time.Second, rdb.(*redis.ClusterClient).Options().ClusterStateReloadInterval)
	var log bytes.Buffer
	require.Eventually(t, func() bool {
		log.Reset()
		answered, err := newRedisCheck(rdb, newHealth(), slog.New(slog.NewTextHandler(&log, nil))).once(t.Context())
		return err == nil && answered && bytes.Contains(log.Bytes(), []byte(servers[0].Addr())) &&
			bytes.Contains(log.Bytes(), []byte(servers[1].Addr()))
	}, 20*time.Second, 50*time.Millisecond, "each primary is named in the warnings")
	require.NoError(t, nodes[1].ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	_, err = newRedisCheck(rdb, newHealth(), slog.New(slog.DiscardHandler)).once(t.Context())
	require.ErrorIs(t, err, ErrRefused)
	assert.ErrorContains(t, err, "allkeys-lru")
}
