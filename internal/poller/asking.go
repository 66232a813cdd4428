package poller

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// The waits of a shard that nobody has a layout for.
const (
	layoutBackoffInitial = 100 * time.Millisecond
	layoutBackoffLimit   = 5 * time.Second
)

// freeNumbers is how many outdated numbers in a row are replaced without a pause.
const freeNumbers = 8

// asking is the state of the calls that a shard makes one at a time. A request for a claim
// stays pending, token and all, until it is answered.
type asking struct {
	isUnderWay bool // a call has no answer yet, and none is made before it has
	number     uint64
	pending    *message.ClaimRequest
	first      time.Duration // when pending was first sent
	began      time.Duration // when it was sent last
	probe      *probe        // the slot that pending claims from; nil: what is due
	allowed    allowance     // what pending may take by the rates
	// unloaded: what is parked in the shard has to be read from Redis first.
	// isLoaded: it was read since the shard is ours.
	unloaded, isLoaded bool
	next               *probe // the slot that can be claimed from now
	slotNext           bool   // whose turn it is, where both what is due and a slot could be claimed
	outdated           int
	epoch              string // the last that was told
	redis              wait.Backoff
	layout             wait.Backoff
	reclaiming         reclaiming
}

// reclaiming is what is being reclaimed, a call after the other.
type reclaiming struct {
	which     message.Reclaim
	strays    []message.ClaimToken // after that
	calls     int
	reclaimed int
}

func newAsking(c *common, number uint64) asking {
	return asking{
		number: number, unloaded: true,
		redis:  c.backoff(redisBackoffInitial, redisBackoffLimit),
		layout: c.backoff(layoutBackoffInitial, layoutBackoffLimit),
	}
}

func (a *asking) isPending() bool { return a.pending != nil }

// advance gives up the pending request and its number.
func (a *asking) advance() {
	a.pending, a.probe, a.allowed = nil, nil, allowance{}
	a.number++
}

// skip leaves numbers out, in growing steps: ours may be far behind. It reports
// whether it was done so often that a pause is due.
func (a *asking) skip() (isOften bool) {
	a.number += 1<<min(a.outdated, 20) - 1
	a.outdated++
	return a.outdated > freeNumbers
}

// answered forgets the troubles that this answer ends.
func (a *asking) answered(state message.ClaimState) {
	a.redis.Reset()
	if state != message.ClaimOutdated {
		a.outdated = 0
	}
	if state != message.ClaimNoLayout {
		a.layout.Reset()
	}
}

// isNewEpoch notes the epoch of an answer, and reports whether it was not told yet.
func (a *asking) isNewEpoch(epoch string) bool {
	isNew := epoch != a.epoch
	a.epoch = epoch
	return isNew
}
