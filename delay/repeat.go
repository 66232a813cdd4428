package delay

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// CallOption changes one call.
type CallOption func(*callOptions)

type callOptions struct{ earlier error }

// Repeat makes a call the repetition of an earlier one. err is the error that the earlier call returned:
//
//	res, err := client.Schedule(ctx, m, when)
//	for errors.Is(err, delay.ErrUnknown) && ctx.Err() == nil {
//		res, err = client.Schedule(ctx, m, when, delay.Repeat(err))
//	}
//
// The loop ends with the call's answer, with ctx, or with [ErrForgotten]: 59 s after the
// first call's start, or if Redis' clock was set forward by as much, the result is no longer
// known. A repetition begins at least 100 ms after the end of the previous call.
//
// After [ErrUnknown] it is the same call: if the first took effect, the repetition returns
// its answer and changes nothing, even if the message was cancelled, replaced or moved since.
// The exception is a message that was published meanwhile: it leaves no trace and is created
// again, marked as one of which another copy may be out, with a delay-attempt of 2 or more.
// After every other error, and after nil, it is a new call.
//
// The verb, the message and its due time must be those of the earlier call, and
// the policy must be [Replace] again if it was; another verb, queue or identity is
// [ErrInvalid]. An empty ID stands for the one that the earlier call made. The
// error is valid only in the process that got it.
func Repeat(err error) CallOption { return func(o *callOptions) { o.earlier = err } }

// Once names a call, so that it has one effect, in whichever process and however often it is made: for the time
// given, from one minute to 30 days, Redis remembers what the first one has answered, in the same step in which it was
// done. A further call of that name changes nothing and gets that answer, whatever has become of the message
// since; also the answers [ErrDuplicate], [ErrTooLate] and [ErrNotFound] are kept, but for that of a dead letter in the way.
//
//	res, err := client.Schedule(ctx, m, when, delay.Once("payment-7 failed", 24*time.Hour))
//
// A name has 1 to 255 bytes, and belongs to a queue, a verb and an identity, so the message needs an ID. It takes about 250
// bytes of Redis, and shards that a smaller number has left stay in use for as long. The call is not compensated, see [WithCompensation]. A failover that loses the
// message loses its trace, too.
func Once(name string, remember time.Duration) CallOption {
	return func(o *callOptions) { o.earlier = &namedCall{name, remember} }
}

const (
	maxCallName = 255
	minRemember = store.Tombstone
	maxRemember = 30 * 24 * time.Hour
)

// namedCall stands for the call that [Once] names, in the place of one whose outcome is unknown.
type namedCall struct {
	name     string
	remember time.Duration
}

func (n *namedCall) Error() string { return "a call of the name " + strconv.Quote(n.name) }

func isNamed(err error) bool {
	var named *namedCall
	return errors.As(err, &named)
}

// call returns the call as one that may have run.
func (n *namedCall) call(queue *store.Producer, verb string, ref Ref) error {
	switch {
	case n.name == "" || len(n.name) > maxCallName:
		return invalid("once", n.name, fmt.Sprintf("a name of 1 to %d bytes", maxCallName))
	case n.remember < minRemember || n.remember > maxRemember:
		return invalid("once", n.remember.String(), fmt.Sprintf("from %s to %s", minRemember, maxRemember))
	case ref.ID == "":
		return invalid("id", "", "a call with a name needs the message's ID")
	}
	name := strings.Join([]string{"\x00once", verb, ref.Key, ref.ID, n.name}, "\x00")
	return queue.Traced(verb, ref.ID, ref.Key, name, n.remember, false)
}

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

// earlier returns the call whose outcome err says is unknown, or nil if there
// is none. A ref without an ID matches any ID under its Key.
func (c *Client) earlier(ctx context.Context, err error, verb string, ref Ref) (*store.UnknownCall, error) {
	var named *namedCall
	if errors.As(err, &named) {
		if err = named.call(c.queue, verb, ref); errors.Is(err, ErrInvalid) {
			return nil, err
		}
	}
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
