package store

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/store/scripts"
)

// run executes the script once, at the most. A Redis that does not know it,
// after SCRIPT FLUSH or a failover, is given the source.
func (q *Queue) run(ctx context.Context, s *scripts.Script, keys []string, args ...any) (*redis.Cmd, error) {
	rdb := q.client(ctx)
	if _, err := nodeFor(ctx, rdb, keys[0]); err != nil {
		return nil, err
	}
	command := s.Command(ctx, false, keys, args)
	err := rdb.Process(ctx, command)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		command = s.Command(ctx, true, keys, args)
		err = rdb.Process(ctx, command)
	}
	refresh(ctx, rdb, err)
	return command.Cmd, err
}

// nodeFor returns the client of the node that holds the key: WAIT has no key,
// so a cluster client would send it anywhere.
func nodeFor(ctx context.Context, rdb redis.UniversalClient, key string) (redis.UniversalClient, error) {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return rdb, nil
	}
	node, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("%w of %s: %w", errNoNode, key, err)
	}
	return node, nil
}
