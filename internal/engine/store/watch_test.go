package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/testenv"
)

// watch asks servers all the time, by connections of its own, and remembers
// when one was slow to answer, or the asking itself was held up.
type watch struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	pauses [][2]time.Time
}

// startWatch watches until stop is called, at the latest at the test's end.
func startWatch(t *testing.T, servers []*testenv.Server) *watch {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &watch{cancel: cancel}
	for _, server := range servers {
		rdb := connect(t, server.URL())
		w.wg.Go(func() { w.ask(ctx, rdb) })
	}
	t.Cleanup(w.stop)
	return w
}

func (w *watch) stop() {
	w.cancel()
	w.wg.Wait()
}

func (w *watch) ask(ctx context.Context, rdb *redis.Client) {
	const every, slow = 20 * time.Millisecond, 100 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for last := time.Now(); ctx.Err() == nil; {
		_ = rdb.Ping(ctx).Err()
		now := time.Now()
		if now.Sub(last) > every+slow {
			w.mu.Lock()
			w.pauses = append(w.pauses, [2]time.Time{last, now})
			w.mu.Unlock()
		}
		last = now
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// slow reports whether anything was slow between from and to. It is called after stop.
func (w *watch) slow(from, to time.Time) bool {
	for _, pause := range w.pauses {
		if pause[0].Before(to) && pause[1].After(from) {
			return true
		}
	}
	return false
}
