package testenv_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestRedisClock sets a server's clock to and fro, which its scripts see, too.
func TestRedisClock(t *testing.T) {
	t.Parallel()
	server, clock := testenv.StartRedisWithClock(t)
	options, err := redis.ParseURL(server.URL())
	require.NoError(t, err)
	client := redis.NewClient(options)
	defer func() { assert.NoError(t, client.Close()) }()
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour, 0} {
		clock.Set(ahead)
		began := time.Now()
		now, err := client.Time(t.Context()).Result()
		require.NoError(t, err)
		inScript, err := client.Eval(t.Context(), "return tonumber(redis.call('TIME')[1])", nil).Int64()
		require.NoError(t, err)
		took := time.Since(began)
		assert.WithinRange(t, now, began.Add(ahead-time.Millisecond), began.Add(ahead+took+time.Millisecond))
		assert.WithinRange(t, time.Unix(inScript, 0), now.Add(-time.Second), now.Add(took+time.Millisecond))
	}
	for _, at := range []int64{1_790_000_000_000_000, 1_700_000_000_000_001} {
		clock.Stop(time.UnixMicro(at))
		for range 2 {
			now, err := client.Time(t.Context()).Result()
			require.NoError(t, err)
			assert.Equal(t, at, now.UnixMicro())
		}
	}
}
