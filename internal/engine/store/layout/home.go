package layout

import "github.com/cespare/xxhash/v2"

// Home returns the shard, 0 to shards-1, of the message (key, id): the jump
// hash of the key, or of the id where the key is empty. All messages of one key
// live in one shard, which is what keeps them in order. shards must be positive. What is
// stored is found by it, so it never changes.
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
