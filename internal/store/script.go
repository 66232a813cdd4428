package store

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"embed"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var sources embed.FS

// script is one verb in Lua.
type script struct {
	source, sha string
}

var (
	scheduleScript   = load("schedule")
	replaceScript    = load("replace")
	cancelScript     = load("cancel")
	rescheduleScript = load("reschedule")
	getScript        = load("get")
	claimScript      = load("claim")
	settleScript     = load("settle")
	reclaimScript    = load("reclaim")
	handoverScript   = load("handover")
	heartbeatScript  = load("heartbeat")
	leaveScript      = load("leave")
	redriveScript    = load("redrive")
	purgeScript      = load("purge")
	statsScript      = load("stats")
	layoutScript     = load("layout")
	changeScript     = load("change")
	fenceScript      = load("fence")
	scanScript       = load("scan")
	drainedScript    = load("drained")
	dropScript       = load("drop")
)

func load(verb string) *script {
	source, err := sources.ReadFile("lua/" + verb + ".lua")
	if err != nil {
		panic(err) // The file is part of the program.
	}
	sum := sha1.Sum(source) //nolint:gosec // see above
	return &script{source: string(source), sha: hex.EncodeToString(sum[:])}
}

// once is a command that go-redis must not resend by itself: only we know
// which run it is.
type once struct{ *redis.Cmd }

// NoRetry turns go-redis' resending off.
func (once) NoRetry() bool { return true }

func (s *script) command(ctx context.Context, bySource bool, keys []string, args []any) once {
	all := make([]any, 0, 3+len(keys)+len(args))
	if bySource {
		all = append(all, "eval", s.source, len(keys))
	} else {
		all = append(all, "evalsha", s.sha, len(keys))
	}
	for _, key := range keys {
		all = append(all, key)
	}
	return once{redis.NewCmd(ctx, append(all, args...)...)}
}

// run executes the script once, at the most. A Redis that does not know it,
// after SCRIPT FLUSH or a failover, is given the source.
func (s *script) run(ctx context.Context, rdb redis.UniversalClient, keys []string, args ...any) (*redis.Cmd, error) {
	if _, err := nodeFor(ctx, rdb, keys[0]); err != nil {
		return nil, err
	}
	command := s.command(ctx, false, keys, args)
	err := rdb.Process(ctx, command)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		command = s.command(ctx, true, keys, args)
		err = rdb.Process(ctx, command)
	}
	refresh(ctx, rdb, err)
	return command.Cmd, err
}

// runDurable executes the script and waits, on the same connection, until as
// many replicas as asked have it or the wait ends. It returns how many have.
func (s *script) runDurable(
	ctx context.Context, rdb redis.UniversalClient, wait Replicas, keys []string, args ...any,
) (*redis.Cmd, int64, error) {
	node, err := nodeFor(ctx, rdb, keys[0])
	if err != nil {
		return nil, 0, err
	}
	command, copies, err := s.pipeline(ctx, node, wait, false, keys, args)
	if redis.HasErrorPrefix(command.Err(), "NOSCRIPT") {
		command, copies, err = s.pipeline(ctx, node, wait, true, keys, args)
	}
	if node != rdb {
		refresh(ctx, rdb, command.Err())
		if errors.Is(command.Err(), redis.ErrClosed) {
			return nil, 0, fmt.Errorf("%w of %s: %w", errNoNode, keys[0], command.Err())
		}
	}
	if command.Err() == nil {
		err = nil // Done; where the wait failed, nobody confirmed it.
	}
	return command, copies, err
}

func (s *script) pipeline(
	ctx context.Context, node redis.UniversalClient, wait Replicas, bySource bool, keys []string, args []any,
) (*redis.Cmd, int64, error) {
	command := s.command(ctx, bySource, keys, args)
	waiting := once{redis.NewCmd(ctx, "wait", wait.Count, wait.Timeout.Milliseconds())}
	pipe := node.Pipeline()
	_ = pipe.Process(ctx, command)
	_ = pipe.Process(ctx, waiting)
	_, err := pipe.Exec(ctx)
	if command.Err() != nil {
		return command.Cmd, 0, command.Err()
	}
	copies, errWait := waiting.Int64()
	return command.Cmd, copies, errors.Join(err, errWait)
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
