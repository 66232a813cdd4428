package store

import (
	"errors"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
)

// States that a producer may want to tell apart. The SDK exports them as its own.
var (
	// ErrUnavailable is returned when Redis was not reached: nothing was sent.
	ErrUnavailable = errors.New("delay: redis unavailable")
	// ErrReload is returned to who writes for a row when the layout is another one than
	// its call, or its door, began with: nothing happened. See [Rows.Pin].
	ErrReload = fmt.Errorf("%w: the layout has changed", ErrUnavailable)
	// ErrUnknown is returned when it cannot be told whether the call took effect.
	ErrUnknown = errors.New("delay: outcome unknown")
	// ErrForgotten is returned to the repetition of a call that began too long ago, by our clock or Redis': it
	// cannot be told any more whether that took effect, and the repetition has done
	// nothing. It is no [ErrUnknown], which may be repeated.
	ErrForgotten = errors.New("delay: outcome unknown for good, the call began too long ago")
	// ErrFull is returned when Redis has reached its memory limit, or the queue its
	// budget; nothing was stored.
	ErrFull = errors.New("delay: full")
	// ErrNotDurable is returned when the call took effect, but what was asked, replicas or the disk, has not confirmed it.
	ErrNotDurable = errors.New("delay: done, but not confirmed as durable")
	// ErrOtherTopic is returned for a message whose topic the caller may not touch, see [WithTopics]; nothing was changed.
	ErrOtherTopic = errors.New("delay: the message is of a topic that the caller may not touch")
	// ErrNoFsync is returned where Redis cannot confirm that a call is on its disk; nothing was written.
	ErrNoFsync = conn.ErrNoFsync
)

// Unavailable says that Redis was not reached, unless there is no layout.
func Unavailable(err error) error {
	if errors.Is(err, ErrNoLayout) {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
