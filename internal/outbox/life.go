package outbox

import (
	"errors"
	"fmt"
	"time"
)

// Lapse is for how long nobody with another Redis must have been there before the rows of a queue
// may be ours: bridges write every ten seconds that they are there.
const Lapse = 30 * time.Second

// ErrOtherRedis is returned where the rows of a queue belong to another Redis than ours.
var ErrOtherRedis = errors.New("the rows belong to another Redis")

// CheckLife reports where the rows of a queue belong to another life of it than ours, and of
// which nobody was seen for so long. Whoever brings rows to Redis asks in the transaction that has locked them.
func CheckLife(queue, ours, theirs string, silent time.Duration) error {
	if theirs == ours {
		return nil
	}
	return fmt.Errorf("queue %s: %w: its life there is %q, last seen %s ago, and here %q; see bridge outbox adopt",
		queue, ErrOtherRedis, theirs, silent.Round(time.Second), ours)
}
