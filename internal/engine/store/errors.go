package store

import (
	"errors"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
)

// The errors that a producer may want to distinguish. The SDK exports them as its own.
var (
	// ErrUnavailable is returned when Redis was not reached: nothing was sent.
	ErrUnavailable = errors.New("delay: redis unavailable")
	// ErrReload is returned to a writer of rows if the layout has changed since its
	// call, or its [Rows.Pin], began. Nothing happened.
	ErrReload = fmt.Errorf("%w: the layout has changed", ErrUnavailable)
	// ErrUnknown is returned when it is unknown whether the call took effect.
	ErrUnknown = errors.New("delay: outcome unknown")
	// ErrForgotten is returned to the repetition of a call that began too long ago, by our clock or Redis'.
	// Whether that call took effect can no longer be found out, and the repetition has done nothing. It is
	// not an [ErrUnknown], which may be repeated.
	ErrForgotten = errors.New("delay: outcome unknown for good, the call began too long ago")
	// ErrFull is returned when Redis has reached its memory limit, or the queue its
	// budget; nothing was stored.
	ErrFull = errors.New("delay: full")
	// ErrNotDurable is returned when the call took effect, but the replicas or the disk have not confirmed it
	// as asked.
	ErrNotDurable = errors.New("delay: done, but not confirmed as durable")
	// ErrOtherTopic is returned for a message whose topic the caller may not touch, see [WithTopics]; nothing was changed.
	ErrOtherTopic = errors.New("delay: the message is of a topic that the caller may not touch")
	// ErrNoFsync is returned if Redis cannot confirm that a call is on its disk; nothing was written.
	ErrNoFsync = conn.ErrNoFsync
)

// Unavailable wraps an error as [ErrUnavailable], unless it is [ErrNoLayout].
func Unavailable(err error) error {
	if errors.Is(err, ErrNoLayout) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
