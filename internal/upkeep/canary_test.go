package upkeep_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/upkeep"
)

// TestCanaryMakesRoom: one waits at the most, and one that became a dead letter does not
// keep the others from coming. Only the keeper sends them.
func TestCanaryMakesRoom(t *testing.T) {
	t.Parallel()
	rdb := storetest.Connect(t, testenv.Redis(t))
	k := newKept(t, storetest.New(t, rdb, 1))
	k.config.Canary.Topic, k.config.Canary.Every = "canaries", time.Second
	canary := upkeep.NewCanary(&k.Queue, client(t, rdb, k.Store, delay.WithConflict(delay.Keep)))
	holds := func(waiting, dead int64) {
		t.Helper()
		stats, err := inspect.NewAdmin(k.Store).Stats(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, []int64{waiting, dead}, []int64{stats.Waiting, stats.Dead})
	}
	k.isKeeper.Store(false)
	require.NoError(t, canary.Turn(t.Context()))
	holds(0, 0)
	k.isKeeper.Store(true)
	for range 2 {
		require.NoError(t, canary.Turn(t.Context()))
		holds(1, 0)
	}
	bridge := storetest.NewBridge(t, k.Store)
	claim := bridge.Claim(10)
	for len(claim.Messages) == 0 { // It is due in this millisecond, or the next.
		claim = bridge.Claim(10)
	}
	bridge.Settle(claim, storetest.Buried)
	holds(0, 1)
	require.ErrorIs(t, canary.Turn(t.Context()), delay.ErrDuplicate)
	holds(0, 0)
	require.NoError(t, canary.Turn(t.Context()))
	holds(1, 0)
}

// TestCanaryArrives: what counts is that the broker has acknowledged the queue's own canary.
func TestCanaryArrives(t *testing.T) {
	t.Parallel()
	rdb := storetest.Connect(t, testenv.Redis(t))
	k := newKept(t, storetest.New(t, rdb, 1))
	k.config.Canary.Topic = "canaries"
	canary := upkeep.NewCanary(&k.Queue, client(t, rdb, k.Store))
	published := func(id, key string, class sinks.Class) {
		claimed := &message.ClaimedMessage{Message: message.Message{ID: id, Key: key}}
		canary.Published(claimed, time.Now(), &sinks.Report{Outcome: sinks.Outcome{Class: class}}, time.Second)
	}
	const id = "delaybridge-canary"
	published("other", "", sinks.Acknowledged)
	published(id, "somebody's", sinks.Acknowledged)
	published(id, "", sinks.Unknown)
	count := func(n int) string {
		return fmt.Sprintf(`delaybridge_canary_seconds_count{queue=%q} %d`, k.Store.Name(), n)
	}
	assert.Contains(t, k.metrics(), count(0))
	published(id, "", sinks.Acknowledged)
	assert.Contains(t, k.metrics(), count(1))
}
