package upkeep_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/upkeep"
)

// TestDeadLettersAreLimited where the queue has limits, by the instance that keeps it.
func TestDeadLettersAreLimited(t *testing.T) {
	t.Parallel()
	k := newKept(t, storetest.New(t, storetest.Connect(t, testenv.Redis(t)), 1))
	bridge := storetest.NewBridge(t, k.Store)
	for _, id := range []string{"a", "b", "c", "d"} {
		storetest.Create(t, k.Store, id, storetest.Past())
		bridge.Finish(storetest.Buried)
	}
	limits := upkeep.NewDeadLimits(&k.Queue)
	stay := func(want int64) {
		t.Helper()
		require.NoError(t, limits.Turn(t.Context()))
		stats, err := inspect.NewAdmin(k.Store).Stats(t.Context(), 0)
		require.NoError(t, err)
		require.Equal(t, want, stats.Dead)
	}
	stay(4)
	k.config.Dead.Max = 1
	k.isKeeper.Store(false)
	stay(4)
	k.isKeeper.Store(true)
	stay(1)
	stay(1)
	assert.Equal(t, 1, k.said("dead letters purged"))
	assert.Equal(t, 1, k.said("messages=3"))
}
