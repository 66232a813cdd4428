// Package sharding says which instance holds which shard of a queue. It is pure: no I/O, no
// clock, no state. layout.Home says in which shard a message lives.
package sharding

import (
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// Owner returns which of the instances should hold a shard: the one with the
// highest random weight, by the rendezvous hashing of Thaler and Ravishankar,
// "Using Name-Based Mappings to Increase Hit Rates" (1998). The result depends
// only on the set of instances, not on their order. An instance that joins
// takes only its share, and the shards of one that leaves are spread over the
// others. It returns "" if there are no instances.
func Owner(queue string, shard int, instances []string) string {
	return owner(strconv.Itoa(shard)+"\x00"+queue, instances)
}

// Owned returns those of the first shards that the instance should hold.
func Owned(queue string, shards int, instance string, instances []string) []int {
	var owned []int
	for shard := range shards {
		if Owner(queue, shard, instances) == instance {
			owned = append(owned, shard)
		}
	}
	return owned
}

// QueueOwner returns which of the instances does the work that is done once for
// the whole queue.
func QueueOwner(queue string, instances []string) string {
	return owner("\x00"+queue, instances)
}

func owner(what string, instances []string) string {
	var first string
	var highest uint64
	for _, instance := range instances {
		weight := xxhash.Sum64String(instance + "\x00" + what)
		if first == "" || weight > highest || weight == highest && instance > first {
			first, highest = instance, weight
		}
	}
	return first
}
