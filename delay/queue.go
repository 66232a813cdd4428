package delay

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// EnsureQueue makes a queue with that many shards, 1 to 4096, if it does not exist,
// so that producers may start before the first bridge. An existing queue is not
// changed, whatever its number of shards, so the call may be made at each start. Only
// the options [WithPrefix] and [WithTimeout] have an effect.
//
// The queue does not know its broker before a bridge has started. Until then topics
// are not checked against the broker's rules, and messages with invalid topics
// become dead letters. The errors are [ErrInvalid] and [ErrUnavailable].
func EnsureQueue(ctx context.Context, rdb redis.UniversalClient, queue string, shards int, opts ...Option) error {
	if shards < 1 || shards > store.MaxShards {
		return invalid("shards", strconv.Itoa(shards), fmt.Sprintf("1 to %d", store.MaxShards))
	}
	c, err := NewClient(rdb, queue, opts...)
	if err != nil {
		return err
	}
	ctx, cancel := c.begin(ctx)
	defer cancel()
	return c.queue.CreateLayout(ctx, store.Layout{Shards: shards, MaxMessage: message.DefaultMaxSize})
}
