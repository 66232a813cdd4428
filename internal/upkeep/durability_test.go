package upkeep_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/upkeep"
)

// TestDurability: while the replica is away, log, metrics and /readyz tell it, each once; and that
// it is back.
func TestDurability(t *testing.T) {
	t.Parallel()
	primary, replica := testenv.StartRedis(t), testenv.StartRedis(t)
	rdb := storetest.Connect(t, primary.URL())
	k := newKept(t, storetest.New(t, rdb, 2).WithDurability(store.ByReplicas(1)))
	d := upkeep.NewDurability(&k.Queue)
	assert.False(t, d.Check().OK)
	assert.Equal(t, "not asked yet", d.Check().Detail)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); d.Run(ctx) }()
	defer func() { cancel(); <-ended }()
	await := func(text string) {
		t.Helper()
		require.Eventually(t, func() bool { return k.said(text) == 1 }, time.Minute, 10*time.Millisecond, "%s", &k.logs)
	}
	durable := `delaybridge_durable{queue="` + k.Store.Name() + `"} `

	await("nothing is published until it does")
	assert.False(t, d.Check().OK)
	assert.NotEmpty(t, d.Check().Detail)
	assert.Contains(t, k.metrics(), durable+"0")
	require.Len(t, d.Whys(), 2)
	require.Error(t, d.Whys()[1])

	host, port, err := net.SplitHostPort(primary.Addr())
	require.NoError(t, err)
	require.NoError(t, storetest.Connect(t, replica.URL()).ReplicaOf(t.Context(), host, port).Err())
	await("redis confirms what it writes again")
	assert.True(t, d.Check().OK)
	assert.Contains(t, k.metrics(), durable+"1")
	assert.Equal(t, []error{nil, nil}, d.Whys())
	assert.Equal(t, 1, k.said("nothing is published until it does"))
}

// TestUnconfirmed says of how many shards, and why.
func TestUnconfirmed(t *testing.T) {
	t.Parallel()
	away := errors.New("no replica")
	require.NoError(t, upkeep.Unconfirmed(nil))
	require.NoError(t, upkeep.Unconfirmed([]error{nil, nil}))
	require.EqualError(t, upkeep.Unconfirmed([]error{away, away}), "no replica")
	require.EqualError(t, upkeep.Unconfirmed([]error{nil, away, nil}), "1 of 3 shards: no replica")
	require.ErrorContains(t, upkeep.Unconfirmed([]error{store.ErrNoFsync}), "needs Redis 7.2 or later with appendonly yes")
}
