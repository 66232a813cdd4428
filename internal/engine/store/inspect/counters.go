package inspect

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
)

// QueueCounters are what the scripts count for the whole queue.
type QueueCounters struct {
	// Life tells the queue from one that is made anew after a wipe: that one
	// counts from 0.
	Life string
	// Retired are the counters of shards that were dropped, by name.
	Retired map[string]int64
	// Shards are those of the shards in use, by name; nil where one has not
	// answered, or has no meta: it was dropped meanwhile, or Redis has lost it.
	Shards []map[string]int64
}

// Counters reads the named counters of every shard: a pipeline a node. An error
// says that some shards have not answered; the others are told all the same. It
// is [ErrNoLayout] where there is no queue.
func (a *Admin) Counters(ctx context.Context, names []string) (QueueCounters, error) {
	layout, err := a.queue.LoadLayout(ctx) // The shards are read later: what it retires, they may lack, but not the other way round.
	if err != nil {
		return QueueCounters{}, err
	}
	counters := QueueCounters{Life: layout.Life(), Retired: layout.Retired, Shards: make([]map[string]int64, layout.InUse())}
	fields := append([]string{"epoch"}, names...)
	metas, err := ask(ctx, a.queue, layout.Keys()[:layout.InUse()], func(pipe redis.Pipeliner, k keys.Shard) *redis.SliceCmd {
		return pipe.HMGet(ctx, k.Meta, fields...)
	})
	if err != nil {
		err = fmt.Errorf("read counters of %s: %w", a.queue.Name(), err)
	}
	for i, cmd := range metas {
		if values := cmd.Val(); cmd.Err() == nil && values[0] != nil {
			counters.Shards[i] = parseCounters(names, values[1:])
		}
	}
	return counters, err
}

func parseCounters(names []string, values []any) map[string]int64 {
	counters := make(map[string]int64, len(names))
	for i, name := range names {
		text, _ := values[i].(string)
		counters[name], _ = strconv.ParseInt(text, 10, 64) // 0 where it was never counted
	}
	return counters
}
