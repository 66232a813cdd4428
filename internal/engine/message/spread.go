package message

import (
	"math/bits"
	"time"

	"github.com/cespare/xxhash/v2"
)

// Spread returns an identity's share of a duration: whole milliseconds from 0 up to
// over (exclusive), the same every time and everywhere. It is independent of the shard.
func Spread(key, id string, over time.Duration) time.Duration {
	if over < time.Millisecond {
		return 0
	}
	place, _ := bits.Mul64(xxhash.Sum64String(key+"\x00"+id+"\x00spread"), uint64(over.Milliseconds()))
	return time.Duration(place) * time.Millisecond //nolint:gosec // less than over
}
