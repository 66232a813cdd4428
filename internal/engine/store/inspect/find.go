package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// scanPage is how many entries one step of a scan looks at.
const scanPage = 1000

// ErrTooMany is returned by Find where more messages than it lists have the ID.
var ErrTooMany = errors.New("too many messages of that id")

// Find returns the members of all messages with that ID, whatever their Key,
// at most limit. It walks all shards, in small steps: for people, not for
// programs.
func Find(ctx context.Context, queue *store.Queue, id string, limit int) ([]string, error) {
	layout, err := queue.AwaitLayout(ctx)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, k := range layout.Keys() {
		for _, key := range []string{k.Due, k.Dead} {
			if err := findIn(ctx, queue, key, id, found); err != nil {
				return nil, err
			}
		}
		err := eachClaimed(ctx, queue, k, func(_ int64, member string) {
			if thisID, _ := message.SplitMember(member); thisID == id {
				found[member] = true
			}
		})
		if err != nil {
			return nil, fmt.Errorf("find: %w", err)
		}
		if len(found) > limit {
			return nil, fmt.Errorf("%w: more than %d", ErrTooMany, limit)
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

func findIn(ctx context.Context, queue *store.Queue, key, id string, found map[string]bool) error {
	if err := queue.Redis(ctx).ZScore(ctx, key, id).Err(); err == nil {
		found[id] = true
	} else if !errors.Is(err, redis.Nil) {
		return fmt.Errorf("find: %w", err)
	}
	pattern := "*\x00" + globEscaper.Replace(id)
	for cursor := uint64(0); ; {
		page, next, err := queue.Redis(ctx).ZScan(ctx, key, cursor, pattern, scanPage).Result()
		if err != nil {
			return fmt.Errorf("find: %w", err)
		}
		for i := 0; i < len(page); i += 2 {
			found[page[i]] = true
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
