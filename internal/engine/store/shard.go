package store

import (
	"fmt"

	"github.com/delaybridge/delaybridge/internal/engine/store/clock"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
)

// errNotReady is returned by a poller's verbs before the layout is known.
var errNotReady = fmt.Errorf("%w: ensure it first", ErrNoLayout)

// Shard is one shard as its poller sees it. The layout must be known, see
// [layout.Registry.Ensure].
type Shard struct {
	*core
	number int
	clock  clock.Clock // of its server, by its claims
}

// Shard is the door of the shard of that number.
func (q *Queue) Shard(number int) *Shard { return &Shard{core: q.core, number: number} }

// keysOf names the keys of a shard that may have one.
func (q *core) keysOf(number int) (keys.Shard, error) {
	switch {
	case q.layouts.InUse() == nil:
		return keys.Shard{}, errNotReady
	case number < 0 || number >= MaxShards:
		return keys.Shard{}, fmt.Errorf("shard %d: must be from 0 to %d", number, MaxShards-1)
	}
	return q.keys.Shard(number), nil
}
