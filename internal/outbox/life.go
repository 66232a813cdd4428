package outbox

import (
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// ErrOtherRedis is returned where the rows of a queue belong to another Redis than ours.
var ErrOtherRedis = errors.New("the rows belong to another Redis")

// CheckLife reports where the rows of a queue belong to another life of it than that of
// the store. Whoever brings rows to Redis asks in the transaction that has locked them.
func CheckLife(queue string, redis Store, rows table.Life) error {
	if rows.Name == redis.Life() {
		return nil
	}
	return OtherRedis(queue, redis.Life(), rows)
}

// OtherRedis says so.
func OtherRedis(queue, ours string, rows table.Life) error {
	return fmt.Errorf("queue %s: %w: its life there is %q, last seen %s ago, and here %q; see bridge outbox adopt",
		queue, ErrOtherRedis, rows.Name, rows.Silent.Round(time.Second), ours)
}
