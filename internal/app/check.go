package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrRefused is returned for a Redis on which messages would be lost.
var ErrRefused = errors.New("this redis cannot be used")

// The oldest Redis that has all commands of the scripts.
const oldestMajor, oldestMinor = 6, 2

// checkRedis refuses a Redis on which messages would be lost, and warns of
// settings with which they may be, on each primary of a Cluster. What an ACL hides is warned of, too. Other
// errors mean that Redis did not answer.
func checkRedis(ctx context.Context, rdb redis.UniversalClient, logger *slog.Logger) error {
	cluster, ok := rdb.(*redis.ClusterClient)
	if !ok {
		return checkNode(ctx, rdb, logger)
	}
	return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		return checkNode(ctx, node, logger.With("node", node.Options().Addr))
	})
}

func checkNode(ctx context.Context, rdb redis.UniversalClient, logger *slog.Logger) error {
	text, err := rdb.Info(ctx).Result()
	if redis.HasErrorPrefix(err, "NOPERM") {
		logger.Warn("settings of redis are hidden", "event", "redis_check", "err", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask redis for its settings: %w", err)
	}
	info := parseInfo(text)
	if version := info["redis_version"]; tooOld(version) {
		return fmt.Errorf("%w: version %s, need %d.%d or later", ErrRefused, version, oldestMajor, oldestMinor)
	}
	policy := info["maxmemory_policy"]
	if strings.HasPrefix(policy, "allkeys-") {
		return fmt.Errorf("%w: maxmemory-policy is %s, so waiting messages would be evicted; set noeviction", ErrRefused, policy)
	}
	for _, warning := range []struct {
		applies bool
		text    string
	}{
		{policy != "" && policy != "noeviction", "maxmemory-policy should be noeviction"},
		{info["aof_enabled"] == "0", "appendonly is off: a restart of redis loses messages"},
		{info["connected_slaves"] == "0", "redis has no replica: its machine is a single point of failure"},
	} {
		if warning.applies {
			logger.Warn(warning.text, "event", "redis_check")
		}
	}
	return nil
}

// parseInfo reads the answer to INFO: lines of key:value.
func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			info[key] = value
		}
	}
	return info
}

// tooOld reports whether a version is known and too old.
func tooOld(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, errMajor := strconv.Atoi(parts[0])
	minor, errMinor := strconv.Atoi(parts[1])
	if errMajor != nil || errMinor != nil {
		return false
	}
	return major < oldestMajor || major == oldestMajor && minor < oldestMinor
}
