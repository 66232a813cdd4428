package delay

import (
	"context"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// Cancel removes a message that waits or is in the dead letters, so that it is
// never published.
//
// ID and Key together identify a message. If ref has no Key and nothing is found, the client
// searches the queue once for that ID under any Key. The search reads the 1,000 waiting
// messages that are due next and up to 1,000 dead letters per shard, in up to 256 shards; over
// all its searches, a client reads at most 2,000 messages a second, with a burst of 20,000. If
// the search finds one, the answer is [ErrInvalid], whose field is the key, and nothing is
// changed; if the search was incomplete, the text of [ErrNotFound] says so.
//
// Its errors are [ErrTooLate], [ErrNotFound], [ErrMaybePublished] (the message is
// removed nevertheless), [ErrUnavailable], [ErrUnknown], [ErrNoLayout],
// [ErrInvalid], and [ErrNotDurable]. For the options see [Repeat].
func (c *Client) Cancel(ctx context.Context, ref Ref, opts ...CallOption) error {
	ctx, cancel := c.begin(ctx)
	defer cancel()
	if err := checkRef(ref); err != nil {
		return err
	}
	earlier, err := c.earlier(ctx, repeated(opts), verbCancel, ref)
	switch {
	case err != nil:
		return err
	case earlier != nil:
		return c.errorOf(ctx, ref, c.queue.CancelAgain(ctx, earlier, c.confirm))
	}
	return c.errorOf(ctx, ref, c.queue.Cancel(ctx, ref.ID, ref.Key, c.confirm))
}

// CancelBatch cancels several messages and returns one result for each, by index, whose Err
// is what [Client.Cancel] would answer. The batch is not atomic. It runs one script per
// fifty messages of a shard. If a result's Err is [ErrUnknown], repeat it by Cancel with
// [Repeat]. The returned error is that of the whole batch, if no item could be tried.
func (c *Client) CancelBatch(ctx context.Context, refs []Ref) ([]Result, error) {
	ctx, cancel := c.begin(ctx)
	defer cancel()
	results := make([]Result, len(refs))
	names, at := make([]string, 0, len(refs)), make([]int, 0, len(refs))
	for i, ref := range refs {
		results[i] = Result{Ref: ref, Err: checkRef(ref)}
		if results[i].Err == nil {
			names, at = append(names, message.Member(ref.ID, ref.Key)), append(at, i)
		}
	}
	if len(at) == 0 {
		return results, nil
	}
	if _, err := c.layout(ctx); err != nil {
		for _, i := range at {
			results[i].Err = err
		}
		return results, err
	}
	var missing []Ref
	var places []int
	for n, answer := range c.queue.CancelMembers(ctx, "", names, c.confirm) {
		r := &results[at[n]]
		if answer.Err == nil && answer.Code == store.NotFound {
			missing, places = append(missing, r.Ref), append(places, at[n])
			continue
		}
		r.Err = c.errorOf(ctx, r.Ref, answer)
	}
	found := c.notFound(ctx, missing...)
	for _, i := range places {
		results[i].Err = found[results[i].Ref]
	}
	return results, nil
}

// Reschedule moves a waiting message to another due time. A dead letter is put
// back with that due time. Its errors and options are those of [Client.Cancel].
func (c *Client) Reschedule(ctx context.Context, ref Ref, when When, opts ...CallOption) error {
	ctx, cancel := c.begin(ctx)
	defer cancel()
	if err := checkRef(ref); err != nil {
		return err
	}
	earlier, err := c.earlier(ctx, repeated(opts), verbReschedule, ref)
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
		return c.errorOf(ctx, ref, c.queue.RescheduleAgain(ctx, earlier, due, c.confirm))
	}
	return c.errorOf(ctx, ref, c.queue.Reschedule(ctx, ref.ID, ref.Key, due, c.confirm))
}

// PublishNow makes a waiting message due now, by Redis' clock. A parked message
// still waits until its route is back; a dead letter is put back. Its errors and
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
