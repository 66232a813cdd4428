package app

import (
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// Clients are the SDK's clients of a queue, one for each policy.
func Clients(rdb redis.UniversalClient, queue string, options ...delay.Option) (map[delay.Conflict]*delay.Client, error) {
	clients := map[delay.Conflict]*delay.Client{}
	for _, conflict := range operate.Conflicts {
		client, err := delay.NewClient(rdb, queue, append(slices.Clip(options), delay.WithConflict(conflict))...)
		if err != nil {
			return nil, fmt.Errorf("queue %s: %w", queue, err)
		}
		clients[conflict] = client
	}
	return clients, nil
}
