package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
)

// idle is how long both loops sleep when nothing is due.
const idle = 100 * time.Millisecond

// loops are goroutines that look again at once while they find something.
type loops struct {
	rdb    *redis.Client
	group  errgroup.Group
	cancel context.CancelFunc
	taker  taker
}

// start runs so many loops, where they do not run yet.
func (p *loops) start(ctx context.Context, count int, to *arrivals, look func(ctx context.Context, n int) (found bool, err error)) {
	p.taker.to.Store(to)
	if p.cancel != nil {
		return
	}
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	for n := range count {
		p.group.Go(func() error {
			for ctx.Err() == nil {
				found, err := look(ctx, n)
				if err != nil && ctx.Err() == nil {
					return err
				}
				if !found {
					_ = sleepUntil(ctx, time.Now().Add(idle)) // It is the end.
				}
			}
			return nil
		})
	}
}

// due are the first members, so many, that are due.
func (p *loops) due(ctx context.Context, key string, count int64) ([]string, error) {
	return p.rdb.ZRangeArgs(ctx, redis.ZRangeArgs{Key: key, Start: "-inf", Stop: time.Now().UnixMilli(), ByScore: true, Count: count}).Result()
}

func (p *loops) stop() error {
	if p.cancel == nil {
		return nil
	}
	p.cancel()
	return p.group.Wait()
}

// patent is the loop as it was patented: a poller a shard, which takes the one
// message with the least score if it is due, and otherwise sleeps. The message is
// the member of the ZSET.
type patent struct {
	loops

	shards int
}

func (p *patent) key(shard int) string { return "patent:" + strconv.Itoa(shard) }

func (p *patent) schedule(ctx context.Context, l load) error {
	return l.by(ctx, func(ctx context.Context, from, n int) error {
		members := map[string][]redis.Z{}
		for i := from; i < from+n; i++ {
			key := p.key(layout.Home("", identity(i), p.shards))
			members[key] = append(members[key], redis.Z{Score: float64(l.dueAt(i).UnixMilli()), Member: identity(i) + " " + string(body)})
		}
		pipe := p.rdb.Pipeline()
		for key, list := range members {
			pipe.ZAdd(ctx, key, list...)
		}
		_, err := pipe.Exec(ctx)
		return err
	})
}

func (p *patent) deliver(ctx context.Context, to *arrivals) error {
	p.start(ctx, p.shards, to, func(ctx context.Context, shard int) (bool, error) {
		due, err := p.due(ctx, p.key(shard), 1)
		if err != nil || len(due) == 0 {
			return false, err
		}
		if err := p.rdb.ZRem(ctx, p.key(shard), due[0]).Err(); err != nil {
			return false, err
		}
		id, _, _ := strings.Cut(due[0], " ")
		p.taker.note(id)
		return true, nil
	})
	return nil
}

func (p *patent) close(context.Context) error { return p.stop() }

// naive is what one writes in an afternoon: one ZSET, a key a message, and pollers
// that take five ids and own what they have removed. A crash after that loses
// messages.
type naive struct {
	loops

	pollers int
}

const naiveKey = "naive"

func (p *naive) schedule(ctx context.Context, l load) error {
	return l.by(ctx, func(ctx context.Context, from, n int) error {
		pipe := p.rdb.Pipeline()
		for i := from; i < from+n; i++ {
			pipe.Set(ctx, identity(i), body, 0)
			pipe.ZAdd(ctx, naiveKey, redis.Z{Score: float64(l.dueAt(i).UnixMilli()), Member: identity(i)})
		}
		_, err := pipe.Exec(ctx)
		return err
	})
}

func (p *naive) deliver(ctx context.Context, to *arrivals) error {
	p.start(ctx, p.pollers, to, func(ctx context.Context, _ int) (bool, error) {
		due, err := p.due(ctx, naiveKey, 5)
		for _, id := range due {
			err = errors.Join(err, p.take(ctx, id))
		}
		return len(due) > 0, err
	})
	return nil
}

func (p *naive) take(ctx context.Context, id string) error {
	removed, err := p.rdb.ZRem(ctx, naiveKey, id).Result()
	if err != nil || removed == 0 {
		return err
	}
	if err := p.rdb.GetDel(ctx, id).Err(); err != nil {
		return err
	}
	p.taker.note(id)
	return nil
}

func (p *naive) close(context.Context) error { return p.stop() }
