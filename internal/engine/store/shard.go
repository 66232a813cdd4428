package store

import (
	"context"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/clock"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
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

// Shard returns the view of the shard of that number.
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

// slotsPage is how many slots one script reads.
const slotsPage = 160

// Parked returns the slots of a shard that hold parked messages, in their order.
// It costs as much as there are such slots, however many messages they hold.
func (q *Shard) Parked(ctx context.Context) ([]message.ParkedRoute, error) {
	k, err := q.keysOf(q.number)
	if err != nil {
		return nil, err
	}
	var routes []message.ParkedRoute
	for next := 1; next <= message.MaxSlot; next = routes[len(routes)-1].Slot + 1 {
		cmd, err := q.conn.Run(ctx, scripts.Parked, []string{k.Due, k.Routes}, next, slotsPage)
		if err != nil {
			return nil, fmt.Errorf("list parked: %w", err)
		}
		page := scripts.NewReply(cmd)
		for i := range page.Values {
			slot := page.List(i)
			routes = append(routes, parseParked(slot))
			if slot.Err != nil {
				return nil, slot.Err
			}
		}
		if page.Err != nil || len(page.Values) < slotsPage {
			return routes, page.Err
		}
	}
	return routes, nil
}

// parseParked decodes one slot in a reply of parked.lua. A failover may have
// lost the route's name.
func parseParked(r *scripts.Reply) message.ParkedRoute {
	p := message.ParkedRoute{Slot: int(r.Int(0)), Messages: int(r.Int(1)), Oldest: time.UnixMilli(r.Int(2))}
	p.Since, p.Route, p.Reason = scripts.CutRoute(r.Text(3))
	return p
}
