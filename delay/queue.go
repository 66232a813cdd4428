package delay

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// EnsureQueue makes a queue of that many shards, 1 to 4096, if there is none, so that
// producers may start before the first bridge. A queue that is there is left as it
// is, whatever its shards; the call may be made at each start. Of the options,
// [WithPrefix] and [WithTimeout] count.
//
// The queue does not know its broker before a bridge has started: until then topics
// are not checked against the broker's rules, and those that it cannot take become
// dead letters. The errors are [ErrInvalid] and [ErrUnavailable].
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
