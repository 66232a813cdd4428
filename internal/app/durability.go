package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/admin"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// askDurableEvery is how often Redis is asked whether it confirms what it is asked to.
const askDurableEvery = 2 * time.Second

// Durability is what the queue's own writes must be.
func Durability(queue config.Queue) store.Durability {
	switch queue.Durability {
	case config.Replicas:
		return store.ByReplicas(queue.Replicas)
	case config.Fsync:
		return store.ByFsync()
	case config.Memory:
	}
	return store.Durability{}
}

// Unconfirmed says of which shards the writes are not confirmed, and why; it is nil
// where all are. whys is as [inspect.Admin.Unconfirmed] returns it.
func Unconfirmed(whys []error) error {
	var first error
	n := 0
	for _, why := range whys {
		if why != nil {
			n++
		}
		if first == nil {
			first = why
		}
	}
	if errors.Is(first, store.ErrNoFsync) {
		first = fmt.Errorf("%w; durability fsync needs Redis 7.2 or later with appendonly yes, and the right to call WAITAOF", first)
	}
	if n > 0 && n < len(whys) {
		first = fmt.Errorf("%d of %d shards: %w", n, len(whys), first)
	}
	return first
}

// durabilityWatch asks Redis whether it confirms what a queue's durability asks, and
// tells log, metrics and /readyz: at the start, and while nothing is due.
type durabilityWatch struct {
	queue   *store.Queue
	metrics *telemetry.Metrics
	logger  *slog.Logger
	trouble telemetry.Trouble

	mu    sync.Mutex
	asked bool
	why   error
}

// newDurabilityWatch returns nil where nothing is asked.
func newDurabilityWatch(queue *store.Queue, d store.Durability, metrics *telemetry.Metrics, logger *slog.Logger) *durabilityWatch {
	if !d.Asked() {
		return nil
	}
	return &durabilityWatch{queue: queue, metrics: metrics, logger: logger}
}

// run asks until ctx ends. The layout must be made.
func (w *durabilityWatch) run(ctx context.Context) {
	for {
		call, cancel := context.WithTimeout(ctx, store.MaxCall)
		whys, err := w.queue.Unconfirmed(call)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = Unconfirmed(whys)
		}
		w.note(err)
		if !wait.Sleep(ctx, askDurableEvery) {
			return
		}
	}
}

func (w *durabilityWatch) note(why error) {
	w.mu.Lock()
	w.asked, w.why = true, why
	w.mu.Unlock()
	w.metrics.Durable(w.queue.Name(), why == nil)
	switch {
	case why == nil && w.trouble.Over():
		w.logger.Info("redis confirms what it writes again", "event", "durability")
	case why != nil && w.trouble.News(why.Error()):
		w.logger.Warn("redis does not confirm what it writes: nothing is published until it does", "event", "durability", "err", why)
	}
}

// check is the line of /readyz.
func (w *durabilityWatch) check() admin.Check {
	w.mu.Lock()
	defer w.mu.Unlock()
	check := admin.Check{Name: "durability " + w.queue.Name(), OK: w.asked && w.why == nil}
	switch {
	case !w.asked:
		check.Detail = "not asked yet"
	case w.why != nil:
		check.Detail = w.why.Error()
	}
	return check
}
