package upkeep

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/admin"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/telemetry"
)

// askDurableEvery is the time between two questions whether Redis confirms writes.
const askDurableEvery = 2 * time.Second

// Unconfirmed says of which shards the writes are not confirmed, and why; nil if
// all are. whys is the result of [store.Queue.Unconfirmed].
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
		first = fmt.Errorf("%w; durability fsync needs Redis 7.2 or later with appendonly yes, with appendfsync everysec Redis 8, and the right to call WAITAOF", first)
	}
	if n > 0 && n < len(whys) {
		first = fmt.Errorf("%d of %d shards: %w", n, len(whys), first)
	}
	return first
}

// Durability asks Redis whether it provides a queue's durability, and reports that
// in log, metrics and /readyz, even at the start and while nothing is due.
type Durability struct {
	queue   *Queue
	trouble telemetry.Trouble

	mu      sync.Mutex
	isKnown bool
	whys    []error // by shard, as far as that is known
	why     error
}

// NewDurability returns a Durability that has not asked yet.
func NewDurability(queue *Queue) *Durability { return &Durability{queue: queue} }

// Run asks until ctx ends. The layout must be made.
func (w *Durability) Run(ctx context.Context) {
	for {
		whys, err := w.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		w.note(whys, err)
		if !wait.Sleep(ctx, askDurableEvery) {
			return
		}
	}
}

func (w *Durability) ask(ctx context.Context) ([]error, error) {
	ctx, cancel := context.WithTimeout(ctx, store.MaxCall)
	defer cancel()
	return w.queue.Store.Unconfirmed(ctx)
}

// note records the answer; err is why it is not known.
func (w *Durability) note(whys []error, err error) {
	why := cmp.Or(err, Unconfirmed(whys))
	w.mu.Lock()
	w.isKnown, w.whys, w.why = true, whys, why
	w.mu.Unlock()
	w.queue.Metrics.Durable(w.queue.Store.Name(), why == nil)
	switch {
	case why == nil && w.trouble.Over():
		w.queue.Logger.Info("redis confirms what it writes again", "event", "durability")
	case why != nil && w.trouble.News(why.Error()):
		w.queue.Logger.Warn("redis does not confirm what it writes: nothing is published until it does", "event", "durability", "err", why)
	}
}

// Whys returns why the shards' writes are not confirmed, by the last answer:
// see [store.Queue.Unconfirmed].
func (w *Durability) Whys() []error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.whys
}

// Check returns the line of /readyz.
func (w *Durability) Check() admin.Check {
	w.mu.Lock()
	defer w.mu.Unlock()
	check := admin.Check{Name: "durability " + w.queue.Store.Name(), OK: w.isKnown && w.why == nil}
	switch {
	case !w.isKnown:
		check.Detail = "not asked yet"
	case w.why != nil:
		check.Detail = w.why.Error()
	}
	return check
}
