package delay

import (
	"context"
	"fmt"
	"math"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
)

// Filter selects messages for [Client.CancelAll]: those with the Tag, those with the Key,
// or, if both are given, those with both.
type Filter struct{ Tag, Key string }

// CancelCount counts the results of a [Client.CancelAll].
type CancelCount struct {
	// Done messages will never be published. MaybePublished ones are removed as well, but
	// a copy of each may have been published before.
	Done, MaybePublished int
	// TooLate messages were in flight: each is published, or goes back to wait.
	TooLate int
}

// CancelAll cancels all messages of the queue that match the filter and wait or are in the dead
// letters, for example when a customer is deleted. It finds every message that exists during the
// whole call, even one that is parked, retried, or claimed and put back. Messages that are
// scheduled during the call may or may not be cancelled. Messages in flight count as TooLate; if
// none may be left, repeat the call until it finds nothing.
//
// By tag, the cost grows with the messages found; one script handles up to 50. By Key, it reads
// the names of all messages in the Key's shard, about 2 µs of Redis' time each, up to 500 a
// script, so prefer a tag for frequent calls. It runs until it is done or ctx ends; the client's
// timeout does not bound it.
//
// After [ErrInvalid], [ErrNoLayout], [ErrUnavailable] and [ErrUnknown] the counted messages are
// done, and the rest are not done or unknown; after [ErrNotDurable] all are done. It is safe to
// call it again after any of them.
func (c *Client) CancelAll(ctx context.Context, filter Filter) (CancelCount, error) {
	if err := filter.check(); err != nil {
		return CancelCount{}, err
	}
	if err := c.load(ctx); err != nil {
		return CancelCount{}, err
	}
	all, _, err := job.CancelAll(ctx, c.store, filter.Tag, filter.Key, math.MaxInt, c.confirm)
	done := CancelCount{Done: all.Done, MaybePublished: all.MaybePublished, TooLate: all.TooLate}
	switch {
	case err != nil:
		return done, failed(err)
	case all.NotDurable > 0:
		return done, notDurable(store.Answer{Missing: all.Missing})
	}
	return done, nil
}

// load loads the queue's layout within the time of a call.
func (c *Client) load(ctx context.Context) error {
	ctx, cancel := c.begin(ctx)
	defer cancel()
	_, err := c.layout(ctx)
	return err
}

func (f Filter) check() error {
	if f == (Filter{}) {
		return invalid("filter", "", "a tag or a key")
	}
	if f.Tag != "" {
		if err := message.CheckTag(f.Tag); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	if err := message.CheckIdentity("id", f.Key); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}
