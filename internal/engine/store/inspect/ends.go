package inspect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// endOf reads an end; nil where there is none, or it is too old.
func endOf(l *store.Layout, stored string, endedMs, nowMs int64) *message.End {
	if stored == "" || nowMs-endedMs > l.Rules.History.Age.Milliseconds() {
		return nil
	}
	end, err := message.ParseEnd(stored, time.UnixMilli(endedMs))
	if err != nil {
		return nil // It is of a later version. No history is better than none of the message.
	}
	return &end
}

// laterEnd is the later one of two that may be nil.
func laterEnd(a, b *message.End) *message.End {
	if a == nil || b != nil && b.At.After(a.At) {
		return b
	}
	return a
}

// endElsewhere looks in all shards for what became of a message: the end stays where the
// message was, and a change of the layout may have given it another home since.
func endElsewhere(ctx context.Context, queue *store.Queue, l *store.Layout, id, key string) (last *message.End, err error) {
	if !l.Rules.History.IsKept() || !l.HasChanged() {
		return nil, nil
	}
	nowMs, member := queue.Now().UnixMilli(), message.Member(id, key)
	for from := 0; from < l.InUse(); from += countersPage {
		page := l.Keys()[from:min(l.InUse(), from+countersPage)]
		ends, ended := make([]*redis.StringCmd, len(page)), make([]*redis.FloatCmd, len(page))
		_, err := queue.Redis(ctx).Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for i, k := range page {
				endedKey, endsKey := k.History()
				ends[i], ended[i] = pipe.HGet(ctx, endsKey, member), pipe.ZScore(ctx, endedKey, member)
			}
			return nil
		})
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, fmt.Errorf("read history: %w", err)
		}
		for i := range page {
			last = laterEnd(endOf(l, ends[i].Val(), int64(ended[i].Val()), nowMs), last)
		}
	}
	return last, nil
}
