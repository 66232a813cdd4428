package main

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
)

// The raw scripts write what ours do, and check nothing.
var (
	rawAdd = redis.NewScript(`
redis.call('ZADD', KEYS[1], unpack(ARGV, 2, ARGV[1] + 1))
redis.call('HSET', KEYS[2], unpack(ARGV, ARGV[1] + 2))
return 0`)
	rawPeek = redis.NewScript(`
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
if #ids == 0 then return {ids, ids} end
return {ids, redis.call('HMGET', KEYS[2], unpack(ids))}`)
	rawDelete = redis.NewScript(`
redis.call('ZREM', KEYS[1], unpack(ARGV))
redis.call('HDEL', KEYS[2], unpack(ARGV))
return 0`)
)

// raw is the least that stores, reads and removes the same messages.
type raw struct {
	alike bool
	rdb   *redis.Client
	body  []byte
}

func newRaw(ctx context.Context, rdb *redis.Client, alike bool) (subject, error) {
	for _, script := range []*redis.Script{rawAdd, rawPeek, rawDelete} {
		if err := script.Load(ctx, rdb).Err(); err != nil {
			return nil, err
		}
	}
	const fixed = 37 // what our stored messages have beside the body
	return &raw{alike: alike, rdb: rdb, body: make([]byte, fixed+bodySize)}, nil
}

func rawKeys(shard int) []string {
	return []string{fmt.Sprintf("raw:{%d}:due", shard), fmt.Sprintf("raw:{%d}:msg", shard)}
}

// schedule sends one script a shard, all at once, as ours do.
func (r *raw) schedule(ctx context.Context, first, n int) error {
	var members [shards][]int
	for i := first; i < first+n; i++ {
		shard := layout.Home("", identity(i), shards)
		members[shard] = append(members[shard], i)
	}
	var group errgroup.Group
	for shard, list := range members {
		if len(list) == 0 {
			continue
		}
		group.Go(func() error {
			args := make([]any, 1, 1+4*len(list))
			args[0] = 2 * len(list)
			for _, i := range list {
				args = append(args, dueAt(i, r.alike), identity(i))
			}
			for _, i := range list {
				args = append(args, identity(i), r.body)
			}
			return rawAdd.EvalSha(ctx, r.rdb, rawKeys(shard), args...).Err()
		})
	}
	return group.Wait()
}

func (r *raw) drain(ctx context.Context, shard int) (drained int, err error) {
	for {
		reply, err := rawPeek.EvalSha(ctx, r.rdb, rawKeys(shard), time.Now().UnixMilli(), batchSize).Slice()
		if err != nil {
			return drained, err
		}
		ids, _ := reply[0].([]any)
		if len(ids) == 0 {
			return drained, nil
		}
		if err := rawDelete.EvalSha(ctx, r.rdb, rawKeys(shard), ids...).Err(); err != nil {
			return drained, err
		}
		if drained += len(ids); len(ids) < batchSize {
			return drained, nil
		}
	}
}
