package inspect

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// messageOverhead is about what a message takes in Redis beside what is stored of it: its
// id in two keys, and their tables.
const messageOverhead = 270

// Limit measures the queue, as [Admin.Used] does, and has producers refused beyond a budget
// of so many bytes: each shard may take its even part of the room that is left. 0 is no
// limit. It is called about once a second: until the next call, what is in the shards' meta
// is in force. It returns how many bytes the queue takes.
func (a *Admin) Limit(ctx context.Context, budget int64) (used int64, err error) {
	err = a.queue.Repeat(ctx, func(l *store.Layout) error {
		shards := l.Keys()[:l.InUse()]
		m, err := a.measure(ctx, shards)
		if err != nil {
			return err
		}
		used = m.used
		room := max(0, budget-used) / m.each / int64(len(shards))
		for i, k := range shards {
			text := ""
			if budget > 0 {
				text = strconv.FormatInt(m.live[i]+room, 10) + " messages"
			}
			if _, err := a.queue.Run(ctx, scripts.Budget, []string{k.Meta}, "budget", text); err != nil {
				return fmt.Errorf("limit shard %d: %w", i, err)
			}
		}
		return nil
	})
	return used, err
}

// Used is about how many bytes the queue takes, dead letters among them: an estimate from a
// sample of its messages.
func (a *Admin) Used(ctx context.Context) (used int64, err error) {
	err = a.queue.Repeat(ctx, func(l *store.Layout) error {
		m, err := a.measure(ctx, l.Keys()[:l.InUse()])
		used = m.used
		return err
	})
	return used, err
}

// measured is what a queue takes.
type measured struct {
	live       []int64 // messages of each shard but for dead ones
	each, used int64   // bytes: of a message on average, and of all
}

func (a *Admin) measure(ctx context.Context, shards []keys.Shard) (m measured, err error) {
	live, dead, err := a.lengths(ctx, shards)
	if err != nil {
		return m, err
	}
	size, err := a.sampleSizes(ctx, shards, live)
	if err != nil {
		return m, err
	}
	m = measured{live: live, each: int64(size.Mean) + messageOverhead}
	m.used = dead * m.each
	for _, n := range live {
		m.used += n * m.each
	}
	return m, nil
}

// lengths are how many messages live in each shard, and how many are dead in all.
func (a *Admin) lengths(ctx context.Context, shards []keys.Shard) (live []int64, dead int64, err error) {
	for from := 0; from < len(shards); from += countersPage {
		page := shards[from:min(len(shards), from+countersPage)]
		cmds, err := a.queue.Redis(ctx).Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, k := range page {
				pipe.HLen(ctx, k.Msg)
				pipe.ZCard(ctx, k.Dead)
			}
			return nil
		})
		if err != nil {
			return nil, 0, fmt.Errorf("count messages: %w", err)
		}
		for i := range page {
			live = append(live, cmds[2*i].(*redis.IntCmd).Val()) //nolint:forcetypeassert // It is what HLen has queued.
			dead += cmds[2*i+1].(*redis.IntCmd).Val()            //nolint:forcetypeassert // as above, ZCard
		}
	}
	return live, dead, nil
}
