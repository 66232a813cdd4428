package store

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1
	"embed"
	"encoding/hex"
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
	putScript        = load("put")
	cancelScript     = load("cancel")
	rescheduleScript = load("reschedule")
	getScript        = load("get")
	claimScript      = load("claim")
	settleScript     = load("settle")
	markScript       = load("mark")
	parkedScript     = load("parked")
	reclaimScript    = load("reclaim")
	handoverScript   = load("handover")
	heartbeatScript  = load("heartbeat")
	leaveScript      = load("leave")
	redriveScript    = load("redrive")
	purgeScript      = load("purge")
	forgetScript     = load("forget")
	statsScript      = load("stats")
	layoutScript     = load("layout")
	changeScript     = load("change")
	fenceScript      = load("fence")
	scanScript       = load("scan")
	drainedScript    = load("drained")
	dropScript       = load("drop")
	touchScript      = load("touch")
	rowsScript       = load("rows")
	removeScript     = load("remove")
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
