package fit

import (
	"fmt"

	"github.com/delaybridge/delaybridge/internal/check"
)

// The shares of memory in use, in percent, from which on a finding is made.
const (
	memoryLow  = 80
	memoryFull = 97
)

// misplaced returns the finding for a server that is not what redis.mode says,
// so that nothing else about it matters; nil otherwise.
func (i Info) misplaced(mode string) *check.Finding {
	f := check.Finding{Level: check.Error, Code: "redis_mode"}
	switch {
	case i["redis_mode"] == "sentinel":
		f.What, f.Remedy = "this is a Sentinel, not a Redis", "set redis.mode to sentinel, with master and sentinels"
		f.Why = "a Sentinel keeps no messages"
	case i["cluster_enabled"] == "1" && mode != "cluster":
		f.What, f.Remedy = "this is a node of a Cluster, and redis.mode is "+mode, "set redis.mode to cluster, and redis.addrs"
		f.Why = "calls for shards of the other nodes are answered MOVED"
	case i["role"] == "slave":
		f.What, f.Remedy = "this is a replica", "name its primary, "+i["master_host"]+":"+i["master_port"]+", or use redis.mode sentinel"
		f.Why = "a replica takes no writes: READONLY"
	default:
		return nil
	}
	return &f
}

// Memory returns how many bytes Redis uses, and may use; 0 means no limit.
func (i Info) Memory() (used, limit int64) { return i.number("used_memory"), i.number("maxmemory") }

// state returns the present problems of a Redis.
func (i Info) state() []check.Finding {
	used, limit := i.Memory()
	rss, all := i.number("used_memory_rss"), i.number("total_system_memory")
	clients, most := i.number("connected_clients"), i.number("maxclients")
	full := limit > 0 && used*100 >= limit*memoryFull
	return append(i.disk(), found(
		when(full, check.Finding{
			Level: check.Error, Code: "redis_full",
			What:   fmt.Sprintf("used_memory is %s of maxmemory %s", size(used), size(limit)),
			Why:    "producers are refused (`delay: redis is full`) until messages have left",
			Remedy: fmt.Sprintf("CONFIG SET maxmemory %d, if the machine has that much", 2*limit),
		}),
		when(!full && limit > 0 && used*100 >= limit*memoryLow, check.Finding{
			Level: check.Warning, Code: "redis_memory",
			What:   fmt.Sprintf("used_memory is %s of maxmemory %s", size(used), size(limit)),
			Why:    "at maxmemory, producers are refused; each waiting message takes 236 bytes beyond id and body",
			Remedy: "raise maxmemory, or keep messages of the far future in an outbox (outbox.horizon)",
		}),
		when(limit == 0 && all > 0 && rss*100 >= all*memoryLow, check.Finding{
			Level: check.Warning, Code: "redis_memory",
			What:   fmt.Sprintf("Redis has %s of the machine's %s, and no maxmemory", size(rss), size(all)),
			Why:    "the kernel kills a Redis that takes more than there is",
			Remedy: fmt.Sprintf("CONFIG SET maxmemory %d, so that producers are refused before that", all/4*3),
		}),
		when(limit > 0 && all > 0 && limit > all, check.Finding{
			Level: check.Warning, Code: "redis_maxmemory",
			What:   fmt.Sprintf("maxmemory %s is more than the machine has, %s", size(limit), size(all)),
			Why:    "the kernel kills Redis before it refuses anybody",
			Remedy: fmt.Sprintf("CONFIG SET maxmemory %d", all/4*3),
		}),
		when(limit > 0 && used < limit && rss > limit/2*3 && rss > 1<<30, check.Finding{
			Level: check.Warning, Code: "redis_fragmentation",
			What:   fmt.Sprintf("Redis has %s from the machine, with a maxmemory of %s", size(rss), size(limit)),
			Why:    "its memory is fragmented, and maxmemory does not count that",
			Remedy: "CONFIG SET activedefrag yes, or restart it after a failover",
		}),
		when(most > 0 && clients*100 >= most*memoryLow, check.Finding{
			Level: check.Warning, Code: "redis_clients",
			What:   fmt.Sprintf("%d of %d connections are in use", clients, most),
			Why:    "further connections are refused, of bridges and producers alike",
			Remedy: fmt.Sprintf("CONFIG SET maxclients %d", 2*most),
		}),
	)...)
}

// disk returns the present problems of the persistence.
func (i Info) disk() []check.Finding {
	return found(
		when(i["loading"] == "1", check.Finding{
			Level: check.Warning, Code: "redis_loading",
			What:   "Redis is loading its data",
			Why:    "it answers nothing else until that is done",
			Remedy: "wait, and check again",
		}),
		when(i["aof_last_write_status"] == "err", check.Finding{
			Level: check.Error, Code: "redis_disk",
			What:   "the last write to the append-only file failed",
			Why:    "Redis refuses all writes (MISCONF) until one succeeds",
			Remedy: "make room on its disk: `df -h` on its machine",
		}),
		when(i["rdb_last_bgsave_status"] == "err", check.Finding{
			Level: check.Warning, Code: "redis_snapshot",
			What:   "the last snapshot failed",
			Why:    "with stop-writes-on-bgsave-error and a save rule, Redis refuses all writes (MISCONF)",
			Remedy: "find the cause in its log (disk full, no memory to fork), then BGSAVE",
		}),
	)
}

// durability is whether Redis can confirm what the queues ask for.
func (i Info) durability(want Want) []check.Finding {
	replicas := i.number("connected_slaves")
	known, has := isAtLeast(i["redis_version"], 7, 2)
	tooFew := want.Replicas > 0 && replicas < int64(want.Replicas)
	return found(
		when(tooFew, check.Finding{
			Level: check.Error, Code: "redis_replicas",
			What:   fmt.Sprintf("durability replicas asks for %d, and %d are connected", want.Replicas, replicas),
			Why:    "nothing is published until that many confirm",
			Remedy: fmt.Sprintf("start them, or set queues.*.replicas to %d, or queues.*.durability to memory", max(1, replicas)),
		}),
		when(want.Replicas > 0 && replicas > int64(want.Replicas), check.Finding{
			Level: check.Warning, Code: "redis_replicas",
			What:   fmt.Sprintf("durability replicas asks for %d of %d replicas", want.Replicas, replicas),
			Why:    "a primary that hung and was replaced goes on for a moment, and a replica that follows it still confirms what is lost then",
			Remedy: fmt.Sprintf("set queues.*.replicas to %d, and delay.Replicas(%d) in producers; one missing replica then stops the queue", replicas, replicas),
		}),
		when(want.Fsync && known && !has, check.Finding{
			Level: check.Error, Code: "redis_waitaof",
			What:   "durability fsync is asked for, and version " + i["redis_version"] + " has no WAITAOF",
			Why:    "nothing is published until the disk has confirmed",
			Remedy: "upgrade Redis to 7.2 or later, or set queues.*.durability to memory or replicas",
		}),
		when(want.Fsync && i["aof_enabled"] == "0", check.Finding{
			Level: check.Error, Code: "redis_waitaof",
			What:   "durability fsync is asked for, and appendonly is off",
			Why:    "nothing is published until the disk has confirmed",
			Remedy: "CONFIG SET appendonly yes, and the same in redis.conf",
		}),
	)
}

// size is a number of bytes for people.
func size(bytes int64) string {
	const unit = 1024
	value, n := float64(bytes), 0
	for value >= unit && n < 4 {
		value, n = value/unit, n+1
	}
	return fmt.Sprintf("%.4g %s", value, []string{"B", "KiB", "MiB", "GiB", "TiB"}[n])
}
