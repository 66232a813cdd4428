// Package sharding says in which shard a message lives. It is pure: no I/O, no
// clock, no state. What it computes is stored in Redis and so is fixed forever.
package sharding

import (
	"math/bits"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Home returns the shard, 0 to shards-1, of the message (key, id): the jump
// hash of the key, or of the id where the key is empty. All messages of one key
// live in one shard, which is what keeps them in order. shards must be positive.
func Home(key, id string, shards int) int {
	if key == "" {
		key = id
	}
	return jump(xxhash.Sum64String(key), shards)
}

// jump is the jump consistent hash of Lamping and Veach, "A Fast, Minimal
// Memory, Consistent Hash Algorithm" (2014): growing from n to m buckets moves
// only what must move.
func jump(hash uint64, buckets int) int {
	var bucket, next int64 = -1, 0
	for next < int64(buckets) {
		bucket = next
		hash = hash*2862933555777941757 + 1
		next = int64(float64(bucket+1) * (float64(int64(1)<<31) / float64((hash>>33)+1)))
	}
	return int(bucket)
}

// Spread returns an identity's place within a time: whole milliseconds from 0 to less
// than over, the same every time and everywhere. It does not follow from the shard.
func Spread(key, id string, over time.Duration) time.Duration {
	if over < time.Millisecond {
		return 0
	}
	place, _ := bits.Mul64(xxhash.Sum64String(key+"\x00"+id+"\x00spread"), uint64(over.Milliseconds()))
	return time.Duration(place) * time.Millisecond //nolint:gosec // less than over
}
