package store

import (
	"context"
	"fmt"
)

// Watch calls wake with a shard's number whenever the head of one of the shards
// moved earlier, until ctx ends. It is a hint: some may be lost, as while Redis
// is away. It blocks, and returns an error only before the layout is known.
func (q *Queue) Watch(ctx context.Context, shards []int, wake func(shard int)) error {
	channels := make([]string, 0, len(shards))
	byChannel := make(map[string]int, len(shards))
	for _, shard := range shards {
		k, err := q.shard(shard)
		if err != nil {
			return err
		}
		channels = append(channels, k.wake)
		byChannel[k.wake] = shard
	}
	subscription := q.rdb.Subscribe(ctx, channels...)
	defer func() { _ = subscription.Close() }()
	hints := subscription.Channel()
	for {
		select {
		case <-ctx.Done():
			return nil
		case hint, ok := <-hints:
			if !ok {
				return fmt.Errorf("watch %s: subscription closed", q.name)
			}
			wake(byChannel[hint.Channel])
		}
	}
}
