package health_test

import (
	"bytes"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/health"
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
	section := config.Redis{Mode: config.Cluster, Addrs: []string{servers[0].Addr()}, DialTimeout: time.Second, Timeout: time.Second}
	rdb, err := section.Open("test")
	require.NoError(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	require.Equal(t, time.Second, rdb.(*redis.ClusterClient).Options().ClusterStateReloadInterval)
	var log bytes.Buffer
	require.Eventually(t, func() bool {
		log.Reset()
		answered, err := health.NewGate(rdb, &health.Redis{}, slog.New(slog.NewTextHandler(&log, nil))).Try(t.Context())
		return err == nil && answered && bytes.Contains(log.Bytes(), []byte(servers[0].Addr())) &&
			bytes.Contains(log.Bytes(), []byte(servers[1].Addr()))
	}, time.Minute, 50*time.Millisecond, "each primary is named in the warnings")
	require.NoError(t, nodes[1].ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err())
	_, err = health.NewGate(rdb, &health.Redis{}, slog.New(slog.DiscardHandler)).Try(t.Context())
	require.ErrorIs(t, err, health.ErrRefused)
	assert.ErrorContains(t, err, "allkeys-lru")
}
