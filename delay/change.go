package delay

import (
	"context"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Cancel removes a message that waits, or is in the dead letters, so that it is
// never published.
//
// Its errors are [ErrTooLate], [ErrNotFound], [ErrMaybePublished], with which
// the message is removed all the same, [ErrUnavailable], [ErrUnknown],
// [ErrNoLayout], [ErrInvalid], and [ErrNotDurable]. For the options see [Repeat].
func (c *Client) Cancel(ctx context.Context, ref Ref, opts ...CallOption) error {
	ctx, cancel := c.begin(ctx)
	defer cancel()
	if err := checkRef(ref); err != nil {
		return err
	}
	earlier, err := c.earlier(repeated(opts), verbCancel, ref)
	switch {
	case err != nil:
		return err
	case earlier != nil:
		return settled(c.queue.CancelAgain(ctx, earlier, c.durable.wait()))
	}
	return settled(c.queue.Cancel(ctx, ref.ID, ref.Key, c.durable.wait()))
}

// Reschedule moves a waiting message to another due time. A message in the dead
// letters is put back, due then. Its errors and options are those
// of [Client.Cancel].
func (c *Client) Reschedule(ctx context.Context, ref Ref, when When, opts ...CallOption) error {
	ctx, cancel := c.begin(ctx)
	defer cancel()
	if err := checkRef(ref); err != nil {
		return err
	}
	earlier, err := c.earlier(repeated(opts), verbReschedule, ref)
	if err != nil {
		return err
	}
	if _, err := c.layout(ctx); err != nil { // Sets the clock that resolve needs.
		return earlier.Still(err)
	}
	due, err := when.For(ref).resolve(c.queue.Now())
	switch {
	case err != nil:
		return err
	case earlier != nil:
		return settled(c.queue.RescheduleAgain(ctx, earlier, due, c.durable.wait()))
	}
	return settled(c.queue.Reschedule(ctx, ref.ID, ref.Key, due, c.durable.wait()))
}

// PublishNow makes a waiting message due now, by Redis' clock. A parked one still
// waits until its route is back; one in the dead letters is put back. Its errors and
// options are those of [Client.Cancel].
func (c *Client) PublishNow(ctx context.Context, ref Ref, opts ...CallOption) error {
	return c.Reschedule(ctx, ref, After(0), opts...)
}

func checkRef(ref Ref) error {
	if err := message.CheckIdentity(ref.ID, ref.Key); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}
