package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/clock"
	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/store/rediserr"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// core is what the views of one queue share.
type core struct {
	keys    keys.Queue
	conn    *conn.Confirmer
	clocks  *clock.Clocks
	layouts *layout.Registry
	ledger  func(shard int) // nil: settling writes no ledger, see WithLedger
	durable Durability      // of a bridge's writes, see WithDurability

	coalescer    *coalescer       // nil: each call has runs of its own
	onRepetition func(Repetition) // may be nil
}

// Name is the queue's name.
func (q *core) Name() string { return q.keys.Name }

// Keys names the queue's keys.
func (q *core) Keys() keys.Queue { return q.keys }

// Now estimates Redis' clock; before the layout was loaded it returns our own.
func (q *core) Now() time.Time {
	if ms, ok := q.clocks.Queue.NowMs(); ok {
		return time.UnixMilli(ms)
	}
	return time.Now()
}

// Clock asks Redis for the time.
func (q *core) Clock(ctx context.Context) (time.Time, error) {
	if _, err := q.LoadLayout(ctx); err != nil {
		return time.Time{}, err
	}
	return q.Now(), nil
}

// Layout returns the layout in use, which is loaded when it is first needed and
// after a shard has refused it. Its error is [ErrNoLayout] if there is none.
func (q *core) Layout(ctx context.Context) (*Layout, error) { return q.layouts.Current(ctx) }

// KnownLayout returns the layout in use if it was read from Redis within that time,
// else nil. It makes no call.
func (q *core) KnownLayout(within time.Duration) *Layout {
	if l := q.layouts.InUse(); l != nil && l.Age() <= within {
		return l
	}
	return nil
}

// LoadLayout reads the layout from Redis, and uses it from now on.
func (q *core) LoadLayout(ctx context.Context) (*Layout, error) { return q.layouts.Load(ctx) }

// AwaitLayout is Layout, repeated until Redis answers or ctx ends.
func (q *core) AwaitLayout(ctx context.Context) (l *Layout, err error) {
	if l, err = q.Layout(ctx); err == nil {
		return l, nil
	}
	err = q.repeat(ctx, func(found *Layout) error { l = found; return nil })
	return l, err
}

// repeat calls a read, or an idempotent write, until it has an answer or ctx ends.
// After a refusal it reconciles the layout, see [layout.Registry.Reconcile].
func (q *core) repeat(ctx context.Context, do func(*Layout) error) error {
	ctx, cancel := context.WithTimeout(ctx, MaxCall)
	defer cancel()
	var since time.Time // the first refusal
	var cause error
	pause := wait.Backoff{Initial: firstPause, Limit: longPause}
	for {
		l, err := q.Layout(ctx)
		if err == nil {
			err = do(l)
		}
		switch {
		case err == nil:
			return nil
		case layout.IsRefusal(err):
			if since.IsZero() {
				since = time.Now()
			}
			q.layouts.Reconcile(ctx, err, since)
		case errors.Is(err, ErrNoLayout), errors.Is(err, scripts.ErrReply):
			return err
		case rediserr.Classify(err) == rediserr.Fatal:
			return Unavailable(err)
		}
		cause = rediserr.Telling(cause, err)
		if !wait.Sleep(ctx, pause.Next()) {
			return fmt.Errorf("%w: %w", ErrUnavailable, cause)
		}
	}
}
