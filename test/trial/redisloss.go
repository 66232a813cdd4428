package trial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"
)

// LoseRedis empties all of Redis.
func (r *OutboxRun) LoseRedis(ctx context.Context) error {
	return r.happen("FLUSHALL", LosesRedis, func() error {
		flush := func(ctx context.Context, node *redis.Client) error { return node.FlushAll(ctx).Err() }
		if cluster, is := r.World.RDB.(*redis.ClusterClient); is {
			return cluster.ForEachMaster(ctx, flush)
		}
		return r.World.RDB.FlushAll(ctx).Err()
	})
}

// LoseShard deletes all keys of a shard.
func (r *OutboxRun) LoseShard(ctx context.Context, shard int) error {
	return r.happen(fmt.Sprint("shard ", shard, " deleted"), LosesRedis, func() error {
		var node redis.Cmdable = r.World.RDB
		if cluster, is := node.(*redis.ClusterClient); is {
			primary, err := cluster.MasterForKey(ctx, r.World.ShardKey(shard))
			if err != nil {
				return err
			}
			node = primary
		}
		keys, err := node.Keys(ctx, r.World.shardKeys(shard, "*")).Result()
		if err != nil || len(keys) == 0 {
			return err
		}
		return node.Del(ctx, keys...).Err()
	})
}

// LoseBodies deletes the bodies of some messages of a shard, and nothing else of
// them.
func (r *OutboxRun) LoseBodies(ctx context.Context, shard, count int) error {
	return r.happen(fmt.Sprint(count, " bodies deleted"), LosesRedis, func() error {
		bodies := r.World.shardKeys(shard, "msg")
		ids, err := r.World.RDB.HRandField(ctx, bodies, count).Result()
		if err != nil || len(ids) == 0 {
			return err
		}
		return r.World.RDB.HDel(ctx, bodies, ids...).Err()
	})
}

func (w *World) shardKeys(shard int, name string) string {
	return fmt.Sprintf("%s:{%s:%d}:%s", w.setup.Prefix, w.setup.Queue, shard, name)
}

// CutPower ends Redis like a power cut that comes that long after its last write to
// the disk. A kill alone loses nothing, since the kernel has the file. Redis must
// append to a file that it does not rewrite.
func (r *OutboxRun) CutPower(ctx context.Context, unwritten time.Duration) error {
	return r.happen("redis without its last writes", RevertsRedis, func() error {
		files, err := filepath.Glob(filepath.Join(r.World.Redis.Dir(), "appendonlydir", "*.incr.aof"))
		if err != nil || len(files) != 1 {
			return fmt.Errorf("files that Redis appends to: %q: %w", files, err)
		}
		written, err := os.Stat(files[0])
		if err != nil {
			return err
		}
		if err := errors.Join(Sleep(ctx, unwritten), r.World.Redis.Kill()); err != nil {
			return err
		}
		return errors.Join(os.Truncate(files[0], written.Size()), r.World.Redis.Start(context.WithoutCancel(ctx)))
	})
}

// FailOverRedis kills the primary of shard 0 after it went on without its replicas
// for a while, and starts it again as a replica.
func (r *OutboxRun) FailOverRedis(ctx context.Context, cutOff time.Duration) error {
	return r.happen("redis fails over", RevertsRedis, func() error {
		f, err := r.World.KillPrimary(ctx, 0, cutOff)
		if err != nil {
			return err
		}
		return f.Repair(context.WithoutCancel(ctx))
	})
}

// EmptyNode has the node of shard 0 in a Cluster come back empty, and its replica.
func (r *OutboxRun) EmptyNode(ctx context.Context) error {
	return r.happen("node empty", LosesRedis, func() error {
		group := r.World.Group.cluster
		family, err := group.FamilyOf(ctx, r.World.ShardKey(0))
		if err != nil {
			return err
		}
		for _, node := range family {
			err = errors.Join(err, node.Kill(), os.RemoveAll(filepath.Join(node.Dir(), "appendonlydir")))
		}
		for _, node := range family {
			err = errors.Join(err, node.Start(context.WithoutCancel(ctx)))
		}
		return errors.Join(err, group.AwaitFailover(context.WithoutCancel(ctx)))
	})
}
