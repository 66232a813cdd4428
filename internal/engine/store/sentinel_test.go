package store_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

func failover(t *testing.T, s *testenv.Sentinel) redis.UniversalClient {
	t.Helper()
	options := groupOptions(s.Addrs())
	options.MasterName = s.Master()
	rdb := redis.NewFailoverClient(options.Failover())
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	verbsWork(t, failover(t, testenv.StartSentinel(t)), store.Durability{Replicas: 2, Timeout: soon})
}

// TestSentinelPrimaryKilled kills the primary, and the one after it, under load.
func TestSentinelPrimaryKilled(t *testing.T) {
	t.Parallel()
	s := testenv.StartSentinel(t)
	rdb := failover(t, s)
	const shards = 2
	q := storetest.New(t, rdb, shards)
	l := startLoad(t, q, shards, store.Durability{Replicas: 2, Timeout: time.Second})
	l.goesOn("before", 0, 1)
	for range 2 {
		killed := s.KillPrimary()
		s.AwaitFailover()
		killed.Start()
		s.AwaitFailover()
		l.goesOn("with the next primary", 0, 1)
	}
	l.stop()
	l.check(rdb)
}
