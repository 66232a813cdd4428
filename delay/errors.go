package delay

import (
	"context"
	"errors"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// Errors of the calls, for errors.Is.
var (
	// ErrDuplicate is returned by Schedule when a message of that identity
	// waits, is being published, or is in the dead letters. Nothing was changed.
	ErrDuplicate = errors.New("delay: duplicate message")
	// ErrNotFound is returned for an identity that was published, cancelled or never
	// seen: nothing is kept after the acknowledgement, unless the queue has a history,
	// which [Client.Get] reads.
	ErrNotFound = errors.New("delay: message not found")
	// ErrTooLate is returned when the message is being published right now.
	// Nothing was changed.
	ErrTooLate = errors.New("delay: too late, message in flight")
	// ErrMaybePublished is returned when the call was done, but a copy of the
	// message may have been published before.
	ErrMaybePublished = errors.New("delay: done, but a copy may have been published")
	// ErrUnknown is returned when a reply was lost, so it is unknown whether the call
	// took effect. After that no run of the call can still take effect, so Get is
	// accurate; but a message that is not found may have been published already. To
	// find out, repeat the call with [Repeat] within 59 s of its start.
	ErrUnknown = store.ErrUnknown
	// ErrForgotten is returned to a repetition, see [Repeat], if the result of the call is
	// no longer known: the call began too long ago, or Redis' clock was set forward. The
	// repetition has changed nothing. Look with Get; a message that is not found may have
	// been published.
	ErrForgotten = store.ErrForgotten
	// ErrUnavailable is returned when Redis was not reached. Nothing was changed.
	ErrUnavailable = store.ErrUnavailable
	// ErrNotDurable is returned when the call was done, but the replicas or the disk of
	// [WithDurability] did not confirm it in time.
	ErrNotDurable = store.ErrNotDurable
	// ErrFull is returned when Redis has reached its memory limit, or the queue its
	// budget (queues.*.budget in the bridge's configuration). Nothing was changed.
	ErrFull = store.ErrFull
	// ErrNoLayout is returned for a queue that does not exist yet: a bridge, a
	// command with a configuration, or [EnsureQueue] makes it.
	ErrNoLayout = store.ErrNoLayout
	// ErrInvalid is returned for input outside a limit, and for an option that
	// this Redis does not support. Its text names the field, the value and the
	// limit. Nothing was changed.
	ErrInvalid = errors.New("delay: invalid")
)

// InvalidError is the cause of an [ErrInvalid], for errors.As: Field is topic, id, key, header,
// tag, late, body or due, or the option or parameter; Value is the given value, shortened, and
// never a body; Limit says what is allowed.
type InvalidError = message.InvalidError

// Done reports whether a call that returned err took effect: err is nil, a copy may be out
// ([ErrMaybePublished]), or confirmations are missing ([ErrNotDurable]). It returns false for [ErrUnknown]
// and [ErrForgotten], whose outcome is not known.
func Done(err error) bool {
	if err == nil {
		return true
	}
	for _, not := range []error{ErrDuplicate, ErrNotFound, ErrTooLate, ErrUnknown, ErrForgotten, ErrUnavailable, ErrFull, ErrNoLayout, ErrInvalid} {
		if errors.Is(err, not) {
			return false
		}
	}
	return errors.Is(err, ErrMaybePublished) || errors.Is(err, ErrNotDurable)
}

func invalid(field, value, limit string) error {
	return fmt.Errorf("%w: %w", ErrInvalid, &message.InvalidError{Field: field, Value: value, Limit: limit})
}

// errorOf turns the store's answer into the call's error.
func (c *Client) errorOf(ctx context.Context, ref Ref, answer store.Answer) error {
	if answer.Err != nil {
		return failed(answer.Err)
	}
	var err error
	switch answer.Code {
	case store.InFlight:
		return ErrTooLate
	case store.NotFound:
		return c.notFound(ctx, ref)[ref]
	case store.OtherTopic:
		return store.ErrOtherTopic
	case store.DoneMaybePublished:
		err = ErrMaybePublished
	default:
	}
	if answer.NotDurable {
		err = errors.Join(err, notDurable(answer))
	}
	return err
}

// failed is the error of a call that was not done, or whose result is unknown.
func failed(err error) error {
	if errors.Is(err, store.ErrNoFsync) {
		const limit = "needs Redis 7.2 or later with appendonly yes, with appendfsync everysec Redis 8, and the right to call WAITAOF"
		return fmt.Errorf("%w: %w", invalid("durability", "Fsync", limit), err)
	}
	return err
}

func notDurable(answer store.Answer) error {
	return fmt.Errorf("%w: %w", ErrNotDurable, answer.Missing)
}
