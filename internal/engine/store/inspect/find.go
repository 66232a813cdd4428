package inspect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
)

// scanPage is how many entries one step of a scan reads.
const scanPage = 1000

// ErrTooMany is returned by Find if more messages than its limit have the ID.
var ErrTooMany = errors.New("too many messages of that id")

// Find returns the members of all messages with that ID, whatever their Key, at
// most limit. It reads all shards in small steps, so it is for operators and
// not for programs.
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

// mostShardsByID bounds the pages of a search, which are sent together.
const mostShardsByID = 256

// PagesByID is how many pages [FindUnderKeys] reads: two a shard.
func PagesByID(l *store.Layout) int { return 2 * min(l.InUse(), mostShardsByID) }

// FindUnderKeys fills in the Keys under which messages of these ids exist, one Key per id.
// The Key decides the shard, and no index has the ids. So it reads one page of waiting
// messages, those due next, and one page of dead letters of each shard, of at most 256
// shards. It does not see messages in flight. It returns how many messages it has read, and
// whether these were all.
func FindUnderKeys(ctx context.Context, queue *store.Queue, byID map[string]string, page int) (looked int, whole bool, err error) {
	layout, err := queue.Layout(ctx)
	if err != nil {
		return 0, false, err
	}
	shards, asked := layout.Keys()[:layout.InUse()], PagesByID(layout)/2
	first := rand.IntN(len(shards)) //nolint:gosec // It only spreads the load.
	spread := slices.Concat(shards[first:], shards[:first])[:asked]
	type heads [2]*redis.StringSliceCmd
	pages, err := ask(ctx, queue, spread, func(pipe redis.Pipeliner, k keys.Shard) heads {
		return heads{pipe.ZRange(ctx, k.Due, 0, int64(page)-1), pipe.ZRange(ctx, k.Dead, 0, int64(page)-1)}
	})
	if err != nil {
		return 0, false, fmt.Errorf("look for ids under keys: %w", err)
	}
	whole = asked == len(shards)
	for _, both := range pages {
		for _, cmd := range both {
			looked, whole = looked+len(cmd.Val()), whole && len(cmd.Val()) < page
			for _, member := range cmd.Val() {
				id, key := message.SplitMember(member)
				if _, isAsked := byID[id]; isAsked && key != "" {
					byID[id] = key
				}
			}
		}
	}
	return looked, whole, nil
}

const (
	// topicsOfShard is how many messages of a shard [Admin.Topics] reads, and
	// topicsBytes about how many bytes of all shards, bodies included.
	topicsOfShard = 16
	topicsBytes   = 16 << 20
)

// Topics returns the topics of some waiting messages, those due first in each
// shard. It writes nothing and repairs nothing. Its error is [ErrNoLayout] if
// nobody has made the queue yet.
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
			continue // It is gone.
		}
		bytes += len(text)
		var m message.Message
		if m.Decode(text) == nil {
			topics[m.Topic] = true
		}
	}
	return bytes, nil
}
