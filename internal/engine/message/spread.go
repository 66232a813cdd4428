package message

import (
	"math/bits"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Spread returns an identity's place within a time: whole milliseconds from 0 to less
// than over, the same every time and everywhere. It does not follow from the shard.
func Spread(key, id string, over time.Duration) time.Duration {
	if over < time.Millisecond {
		return 0
	}
	place, _ := bits.Mul64(xxhash.Sum64String(key+"\x00"+id+"\x00spread"), uint64(over.Milliseconds()))
	return time.Duration(place) * time.Millisecond //nolint:gosec // less than over
}
