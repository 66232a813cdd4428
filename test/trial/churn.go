package trial

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
)

// Churn is a steady load of which one message in twenty is cancelled, and one in
// twenty rescheduled, at any moment of its life. Redis may fail meanwhile: an answer that
// leaves the outcome open promises nothing.
type Churn struct {
	Steady Steady

	operations errgroup.Group
	ledger     *Ledger
}

// busy is how many calls may wait for Redis at once, so that those which need a
// dead node do not hold up others.
const busy = 2000

// churnEvery is how often a batch is scheduled: where a replica is missing, each
// shard's part of a batch holds a connection until the wait for it ends.
const churnEvery = 100 * time.Millisecond

// Run schedules until ctx ends, and finishes the calls that are under way.
func (c *Churn) Run(ctx context.Context, ledger *Ledger) error {
	c.ledger, c.Steady.Outages, c.Steady.Parallel, c.Steady.Every = ledger, true, busy, churnEvery
	c.operations.SetLimit(busy)
	calls := context.WithoutCancel(ctx)
	c.Steady.Accepted = func(refs []delay.Ref) {
		for i, ref := range refs {
			if i%20 > 1 {
				continue
			}
			// Many waits end when the message is due, or later.
			wait := time.Duration(rand.Int64N(int64(c.Steady.Lead + c.Steady.Spread))) //nolint:gosec // no secret
			c.operations.TryGo(func() error {
				if err := Sleep(calls, wait); err != nil {
					return err
				}
				return c.operate(calls, ref, i%20 == 0)
			})
		}
	}
	err := c.Steady.Run(ctx, ledger)
	return errors.Join(err, c.operations.Wait())
}

// operate cancels, or reschedules, and records the answer.
func (c *Churn) operate(ctx context.Context, ref delay.Ref, cancel bool) error {
	verb, due := "reschedule", time.Now().Add(c.Steady.Lead+c.Steady.Spread/2)
	call := func() error { return c.Steady.Client.Reschedule(ctx, ref, delay.At(due)) }
	if cancel {
		verb, call = "cancel", func() error { return c.Steady.Client.Cancel(ctx, ref) }
	}
	err := c.Steady.Calls.Time(verb, call)
	switch {
	case errors.Is(err, delay.ErrUnavailable) && !errors.Is(err, delay.ErrUnknown):
		return nil // Nothing was changed.
	case errors.Is(err, delay.ErrNotFound):
		c.ledger.Absent(ref.ID)
	}
	if cancel {
		return c.ledger.CancelAnswered(ref.ID, err)
	}
	return c.ledger.RescheduleAnswered(ref.ID, due, err)
}
