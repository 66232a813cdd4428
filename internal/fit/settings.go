// Package fit checks whether a Redis is fit to keep messages, by what it says
// of itself and by what it does. It changes nothing.
//
// The bridge checks the [Settings] of each primary at its start; `bridge check`
// checks those and everything else.
package fit

import (
	"strconv"
	"strings"

	"github.com/delaybridge/delaybridge/internal/check"
)

// Oldest is the oldest Redis that has all commands of the scripts, and an XADD that makes no
// stream.
const Oldest = "6.2"

const oldestMajor, oldestMinor = 6, 2

// Info is what a Redis answers to INFO, by the names of the fields.
type Info map[string]string

// ParseInfo reads the answer to INFO: lines of key:value.
func ParseInfo(text string) Info {
	info := Info{}
	for line := range strings.Lines(text) {
		if key, value, found := strings.Cut(strings.TrimSpace(line), ":"); found {
			info[key] = value
		}
	}
	return info
}

func (i Info) number(field string) int64 {
	n, err := strconv.ParseInt(i[field], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Settings returns the problems of the version, the eviction, the persistence and
// the replicas of a Redis. An Error means that messages would be lost.
func Settings(info Info) []check.Finding {
	policy := info["maxmemory_policy"]
	return found(
		when(info.IsTooOld(), check.Finding{
			Level: check.Error, Code: "redis_version",
			What:   "version " + info["redis_version"] + ", need " + Oldest + " or later",
			Why:    "the scripts use commands that it does not have",
			Remedy: "upgrade Redis",
		}),
		when(strings.HasPrefix(policy, "allkeys-"), check.Finding{
			Level: check.Error, Code: "redis_eviction",
			What:   "maxmemory-policy is " + policy + ", so waiting messages would be evicted; set noeviction",
			Why:    "a full Redis silently throws away messages that it has accepted",
			Remedy: "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf",
		}),
		when(policy != "" && policy != "noeviction" && !strings.HasPrefix(policy, "allkeys-"), check.Finding{
			Level: check.Warning, Code: "redis_eviction",
			What:   "maxmemory-policy should be noeviction, but is " + policy,
			Why:    "a full Redis evicts keys with a time to live first: the leases of the shards are such keys",
			Remedy: "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf",
		}),
		when(info["aof_enabled"] == "0", check.Finding{
			Level: check.Warning, Code: "redis_aof",
			What:   "appendonly is off: a restart of redis loses messages",
			Why:    "messages accepted since the last snapshot are lost, or all of them if there are no snapshots",
			Remedy: "CONFIG SET appendonly yes, and the same in redis.conf",
		}),
		when(info["connected_slaves"] == "0" && info["role"] != "slave", check.Finding{
			Level: check.Warning, Code: "redis_replica",
			What:   "redis has no replica: its machine is a single point of failure",
			Why:    "waiting messages are lost with the machine's disk, and nothing is published while the machine is down",
			Remedy: "start a replica (REPLICAOF host port), with Sentinel or Cluster to promote it; see durability in docs/operations.md",
		}),
	)
}

// when returns the finding if it applies, else nil.
func when(applies bool, f check.Finding) *check.Finding {
	if !applies {
		return nil
	}
	return &f
}

// found are the findings that apply.
func found(list ...*check.Finding) []check.Finding {
	var findings []check.Finding
	for _, f := range list {
		if f != nil {
			findings = append(findings, *f)
		}
	}
	return findings
}

// IsTooOld reports whether the version is known, and older than [Oldest].
func (i Info) IsTooOld() bool {
	known, enough := isAtLeast(i["redis_version"], oldestMajor, oldestMinor)
	return known && !enough
}

// isAtLeast reports whether a version is known, and whether it is that one or later.
func isAtLeast(version string, major, minor int) (known, enough bool) {
	first, rest, _ := strings.Cut(version, ".")
	second, _, _ := strings.Cut(rest, ".")
	a, errMajor := strconv.Atoi(first)
	b, errMinor := strconv.Atoi(second)
	return errMajor == nil && errMinor == nil, a > major || a == major && b >= minor
}
