package delay

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// The budget for searches for forgotten Keys, in messages read. A search reads a page of each
// shard, and a client that mostly asks for missing messages must not read the whole queue
// again and again.
const (
	lookAtMost   = 1_000 // of those that wait in a shard, and of its dead letters
	looksAtOnce  = 20_000
	looksASecond = 2_000
	lookCosts    = 8 // a page, in addition to its messages
	lookTakes    = time.Second
)

// lookBudget limits how many messages the searches of a client read.
type lookBudget struct {
	mu    sync.Mutex
	spent float64
	as    time.Time
}

// reserve takes the possible cost of a search from the budget, and returns how many
// messages it may read of each page, 0 if the budget is used up.
func (l *lookBudget) reserve(pages int) (each, cost int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.spent, l.as = max(0, l.spent-looksASecond*now.Sub(l.as).Seconds()), now
	each = min(lookAtMost, int(looksAtOnce-l.spent)/pages-lookCosts)
	if each < lookCosts {
		return 0, 0
	}
	cost = pages * (each + lookCosts)
	l.spent += float64(cost)
	return each, cost
}

func (l *lookBudget) refund(cost int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spent -= float64(cost)
}

// notFound returns the errors of refs for which nothing was found: [ErrNotFound], or [ErrInvalid]
// for a ref without a Key whose ID exists under some Key.
func (c *Client) notFound(ctx context.Context, refs ...Ref) map[Ref]error {
	errs, keys := make(map[Ref]error, len(refs)), map[string]string{}
	for _, ref := range refs {
		errs[ref] = ErrNotFound
		if ref.Key == "" {
			keys[ref.ID] = ""
		}
	}
	if len(keys) == 0 {
		return errs
	}
	whole := c.lookUnderKeys(ctx, keys)
	for id, key := range keys {
		switch {
		case key != "":
			errs[Ref{ID: id}] = invalid("key", "", fmt.Sprintf("a message of the id %q is there under the key %q", id, key))
		case !whole:
			errs[Ref{ID: id}] = fmt.Errorf("%w: no key was given, and the search for its id under other keys was incomplete", ErrNotFound)
		}
	}
	return errs
}

// lookUnderKeys finds the Keys under which the ids exist, and reports whether it has read all
// waiting and dead messages.
func (c *Client) lookUnderKeys(ctx context.Context, keys map[string]string) (whole bool) {
	ctx, cancel := context.WithTimeout(ctx, lookTakes)
	defer cancel()
	layout, err := c.queue.Layout(ctx)
	if err != nil {
		return false
	}
	pages := inspect.PagesByID(layout)
	each, cost := c.looks.reserve(pages)
	if each == 0 {
		return false
	}
	looked, whole, err := inspect.FindUnderKeys(ctx, c.store, keys, each)
	c.looks.refund(cost - looked - pages*lookCosts)
	return whole && err == nil
}
