package delay

import (
	"context"
	"errors"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// CallOption changes one call.
type CallOption func(*callOptions)

type callOptions struct{ earlier error }

// Repeat makes a call the repetition of an earlier one, whose error it is given:
//
//	res, err := client.Schedule(ctx, m, when)
//	for errors.Is(err, delay.ErrUnknown) && ctx.Err() == nil {
//		res, err = client.Schedule(ctx, m, when, delay.Repeat(err))
//	}
//
// The loop ends with the call's answer, with ctx, or with [ErrForgotten]: from 59 s after
// the first call's start on, or if Redis' clock was set forward by as much, its result is no
// longer known. A repetition begins at the earliest 100 ms after the end of the call before.
//
// After [ErrUnknown] it is the same call: if that took effect, the repetition gets its answer
// and does nothing again, even if the message was cancelled, replaced or moved since. Only
// a message that was published meanwhile leaves no trace and is created again: that copy is
// marked as one of which another may be out, and has a delay-attempt of 2 or more. After
// every other error, and after nil, it is a new call.
//
// The verb, the message and its due time must be those of the earlier call, and so
// must the policy be, as far as it is [Replace] or not; another verb, queue or
// identity is [ErrInvalid]. An empty ID is the one that the earlier call made.
// The error works in the process that got it.
func Repeat(err error) CallOption { return func(o *callOptions) { o.earlier = err } }

func repeated(opts []CallOption) error {
	var o callOptions
	for _, set := range opts {
		set(&o)
	}
	return o.earlier
}

// The verbs as the store names them.
const (
	verbSchedule   = "schedule"
	verbReplace    = "replace"
	verbCancel     = "cancel"
	verbReschedule = "reschedule"
)

// earlier is the call of which err tells that its outcome is unknown, nil where
// there is none. Without an ID ref is any of the Key.
func (c *Client) earlier(ctx context.Context, err error, verb string, ref Ref) (*store.UnknownCall, error) {
	var unknown *store.UnknownError
	if !errors.As(err, &unknown) {
		return nil, nil //nolint:nilnil // No call is repeated, which is no error.
	}
	e := &unknown.Call
	if ref.ID == "" {
		ref.ID = e.ID
	}
	was, is := e.Verb+" of "+e.ID+" in "+e.Queue, verb+" of "+ref.ID+" in "+c.queue.Name()
	if was != is || e.Key != ref.Key {
		return nil, invalid("repeat", is, "the call that was "+was)
	}
	return e, e.Again(ctx)
}
