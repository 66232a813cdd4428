package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

const (
	// topicsOfShard is how many messages of a shard [Admin.Topics] looks at, and
	// topicsBytes how many bytes of all shards, about: bodies come with them.
	topicsOfShard = 16
	topicsBytes   = 16 << 20
)

// Topics are the topics of some of what waits, those first that are due first in
// their shards. It writes nothing, and mends nothing that it meets. Its error is
// [ErrNoLayout] where nobody has made the queue yet.
func (a *Admin) Topics(ctx context.Context) ([]string, error) {
	layout, err := a.queue.LoadLayout(ctx)
	if err != nil {
		return nil, err
	}
	topics, bytes := map[string]bool{}, 0
	rdb := a.queue.Redis(ctx)
	for _, k := range layout.Keys()[:layout.InUse()] {
		members, err := rdb.ZRange(ctx, k.Due, 0, topicsOfShard-1).Result()
		if err != nil {
			return nil, fmt.Errorf("look what waits: %w", err)
		}
		for chunk := range slices.Chunk(members, store.BodiesAtOnce) {
			if bytes > topicsBytes {
				break
			}
			n, err := addTopics(ctx, rdb, k.Msg, chunk, topics)
			if err != nil {
				return nil, err
			}
			bytes += n
		}
	}
	return slices.Sorted(maps.Keys(topics)), nil
}

// addTopics reads messages and adds their topics. It returns how many bytes they had.
func addTopics(ctx context.Context, rdb redis.UniversalClient, key string, members []string, topics map[string]bool) (bytes int, err error) {
	stored, err := rdb.HMGet(ctx, key, members...).Result()
	if err != nil {
		return 0, fmt.Errorf("look at what waits: %w", err)
	}
	for _, value := range stored {
		text, ok := value.(string)
		if !ok {
			continue // It has left.
		}
		bytes += len(text)
		var m message.Message
		if m.Decode(text) == nil {
			topics[m.Topic] = true
		}
	}
	return bytes, nil
}
