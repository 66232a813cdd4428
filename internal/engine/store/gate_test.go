package store_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// TestReplicaMissing has many calls at once ask for a replica that is not
// there, one that hangs, and one that is there.
func TestReplicaMissing(t *testing.T) {
	t.Parallel()
	const pool, callers = 20, 500
	const mayWait = pool * 3 / 4
	primary := testenv.StartRedis(t, "--repl-diskless-sync-delay", "0")
	rdb := connect(t, primary.URL(), func(o *redis.Options) { o.PoolSize = pool })
	observer := connect(t, primary.URL())
	q := storetest.New(t, rdb, 1)
	asked := store.Durability{Replicas: 1, Timeout: time.Second}
	storms := 0
	storm := func(durable bool) (waits int64, ok bool) {
		storms++
		before, began, ok := commandCalls(t, observer, "wait"), time.Now(), true
		for _, answer := range atOnce(t, q, fmt.Sprint(storms), callers, asked) {
			answered(t, store.Created, answer)
			ok = ok && durable != answer.NotDurable
			if answer.NotDurable {
				require.ErrorContains(t, answer.Missing, "0 of 1 replicas")
			}
		}
		waits = commandCalls(t, observer, "wait") - before
		t.Logf("%d calls in %v, %d waited", callers, time.Since(began).Round(time.Millisecond), waits)
		return waits, ok
	}
	// One at a time looks whether the replica is back.
	inVain := func(why string, most int64) {
		t.Helper()
		began := time.Now()
		waits, ok := storm(false)
		require.True(t, ok, "%s: not durable", why)
		require.LessOrEqual(t, waits-int64(time.Since(began)/asked.Timeout), most, why)
	}
	// A loaded machine may be slow to confirm.
	allWait := func() bool {
		waits, ok := storm(true)
		return ok && waits == callers
	}
	inVain("absent", mayWait)
	inVain("still absent", 1)
	replica := testenv.StartRedis(t, "--replicaof", "127.0.0.1 "+portOf(primary))
	inSync(t, observer)
	require.Eventually(t, allWait, soon, 10*time.Millisecond, "it is seen that the replica is back")
	replica.Pause()
	inVain("silent", mayWait)
	replica.Resume()
	require.Eventually(t, allWait, soon, 10*time.Millisecond, "it is seen that the replica goes on")
}

// atOnce schedules a message from each of n callers.
func atOnce(t *testing.T, q *store.Queue, name string, n int, asked store.Durability) []store.Answer {
	t.Helper()
	answers := make([]store.Answer, n)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			answers[i] = q.Producer().Schedule(t.Context(), requests(later(), fmt.Sprint(name, "-", i)), false, asked)[0]
		})
	}
	wg.Wait()
	return answers
}
