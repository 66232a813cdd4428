package outbox

import (
	"errors"
	"fmt"
	"time"
)

// Lapse is how long no bridge with another Redis may have written its presence before the rows of
// a queue may be ours. Bridges write it every ten seconds.
const Lapse = 30 * time.Second

// ErrOtherRedis is returned if the rows of a queue belong to another Redis than ours.
var ErrOtherRedis = errors.New("the rows belong to another Redis")

// CheckLife returns an error if the rows of a queue belong to another life than ours; silent is how
// long no bridge of that life was seen. A caller that brings rows to Redis checks it in the
// transaction that has locked them.
func CheckLife(queue, ours, theirs string, silent time.Duration) error {
	if theirs == ours {
		return nil
	}
	return fmt.Errorf("queue %s: %w: its life there is %q, last seen %s ago, and here %q; see bridge outbox adopt",
		queue, ErrOtherRedis, theirs, silent.Round(time.Second), ours)
}
