package upkeep_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
	"github.com/delaybridge/delaybridge/internal/upkeep"
)

// TestBudget: producers are refused beyond the budget, and no more when it only warns.
func TestBudget(t *testing.T) {
	t.Parallel()
	rdb := storetest.Connect(t, testenv.Redis(t))
	k := newKept(t, storetest.New(t, rdb, 2))
	k.config.Budget = config.Budget{Bytes: 64 << 10}
	budget, producer := upkeep.NewBudget(&k.Queue), client(t, rdb, k.Store)
	add := func() error {
		_, err := producer.Schedule(t.Context(), delay.Message{Topic: "t", Body: make([]byte, 1000)}, delay.After(time.Hour))
		return err
	}
	const usedUp = "budget is used up"
	require.NoError(t, budget.Turn(t.Context()))
	require.NoError(t, add())
	for k.said(usedUp) == 0 { // Each shard gets a part of the room that is left.
		var err error
		for err == nil {
			err = add()
		}
		require.ErrorIs(t, err, delay.ErrFull)
		require.NoError(t, budget.Turn(t.Context()))
	}
	require.NoError(t, budget.Turn(t.Context()))
	assert.Equal(t, 1, k.said(usedUp))
	assert.Contains(t, k.metrics(), `delaybridge_budget_bytes{queue="`+k.Store.Name()+`"} 65536`)
	k.config.Budget.Policy = config.BudgetWarn
	require.NoError(t, budget.Turn(t.Context()))
	require.NoError(t, add())
}

// TestBudgetIsKnownToAll: an instance that does not keep the queue tells how full it is,
// and limits nobody.
func TestBudgetIsKnownToAll(t *testing.T) {
	t.Parallel()
	rdb := storetest.Connect(t, testenv.Redis(t))
	k := newKept(t, storetest.New(t, rdb, 2))
	k.isKeeper.Store(false)
	k.config.Budget.Bytes = 1000
	producer, other := client(t, rdb, k.Store), upkeep.NewBudget(&k.Queue)
	require.NoError(t, other.Turn(t.Context()))
	assert.Equal(t, &inspect.Room{Limit: 1000}, other.Room())
	_, err := producer.Schedule(t.Context(), delay.Message{Topic: "t", Body: make([]byte, 2000)}, delay.After(time.Hour))
	require.NoError(t, err)
	require.NoError(t, other.Turn(t.Context()))
	assert.Equal(t, &inspect.Room{Limit: 1000}, other.Room(), "it looks every ten seconds")
	later := upkeep.NewBudget(&k.Queue)
	require.NoError(t, later.Turn(t.Context()))
	assert.Greater(t, later.Room().Used, int64(2000))
	_, err = producer.Schedule(t.Context(), delay.Message{Topic: "t"}, delay.After(time.Hour))
	require.NoError(t, err)
	k.config.Budget.Bytes = 0
	require.NoError(t, later.Turn(t.Context()))
	assert.Nil(t, later.Room(), "there is none any more")
}

// TestBudgetIsTakenBack by a keeper that has none, and again when it comes back: the keeper
// between may have had one.
func TestBudgetIsTakenBack(t *testing.T) {
	t.Parallel()
	rdb := storetest.Connect(t, testenv.Redis(t))
	k := newKept(t, storetest.New(t, rdb, 2))
	producer, mine := client(t, rdb, k.Store), upkeep.NewBudget(&k.Queue)
	add := func() error {
		_, err := producer.Schedule(t.Context(), delay.Message{Topic: "t"}, delay.After(time.Hour))
		return err
	}
	limit := func() {
		_, err := inspect.NewAdmin(k.Store).Limit(t.Context(), 1)
		require.NoError(t, err)
		require.ErrorIs(t, add(), delay.ErrFull)
	}
	for range 2 {
		limit()
		k.isKeeper.Store(false)
		require.NoError(t, mine.Turn(t.Context()))
		require.ErrorIs(t, add(), delay.ErrFull, "another keeps the queue")
		k.isKeeper.Store(true)
		require.NoError(t, mine.Turn(t.Context()))
		require.NoError(t, add())
	}
	limit()
	require.NoError(t, mine.Turn(t.Context()))
	require.ErrorIs(t, add(), delay.ErrFull, "it is taken back once")
}
