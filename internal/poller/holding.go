package poller

import (
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// The waits for another instance's lease. It may be given up any moment, and
// the hint that says so may be lost; a shard is not held by another for long
// while it is ours to poll.
const (
	leastHeld   = 10 * time.Millisecond
	heldInitial = 25 * time.Millisecond
	heldLimit   = 500 * time.Millisecond
)

// holding is what a shard's loop knows of who holds it.
type holding struct {
	lease *lease
	// mine: the last claim was granted. byOther: the last one found another holder,
	// at refusedAt. left: an earlier holder has left claims behind.
	mine, byOther, left bool
	refusedAt           time.Duration
	// othersUntil is when the lease of another ends at the earliest, as its last
	// answer told; zero if it told of none.
	othersUntil time.Duration
	// holder is what names the other's lease, and since when it has not changed.
	holder string
	since  time.Duration

	pause, reclaimPause wait.Backoff
}

func newHolding(c *common) holding {
	return holding{
		lease:        &lease{},
		pause:        c.backoff(heldInitial, heldLimit),
		reclaimPause: c.backoff(leastHeld, time.Second),
	}
}

// isOthers notes that another instance holds the shard, and returns how long to
// wait before asking again.
func (h *holding) isOthers(began, received time.Duration, claim *message.Claim) time.Duration {
	if !h.byOther || claim.Holder != h.holder {
		h.holder, h.since = claim.Holder, received
	}
	h.lease.until = 0
	h.byOther, h.mine = true, false
	h.refusedAt, h.othersUntil = received, began+claim.HeldFor
	return max(leastHeld, min(claim.HeldFor, h.pause.Next()))
}

// isMine reports whether the shard is, and the lease has not lapsed.
func (h *holding) isMine(now time.Duration) bool {
	return h.mine && now < h.lease.until
}

// seize names the other's lease where it has not been renewed for longer than it
// lasts, by our own clock: Redis' clock may have been set back, and would keep it.
func (h *holding) seize(now, lasts time.Duration) string {
	if h.byOther && now-h.since > lasts+lasts/2 {
		return h.holder
	}
	return ""
}

// granted notes that the shard is ours, and tells whether it was not before, and
// whether its last holder had fallen silent.
func (h *holding) granted(received time.Duration) (isNew, lapsed bool) {
	h.byOther = false
	h.pause.Reset()
	if h.mine {
		return false, false
	}
	lapsed = h.left
	if h.othersUntil > 0 {
		lapsed = received >= h.othersUntil
	}
	h.mine, h.left, h.othersUntil = true, false, 0
	return true, lapsed
}

// renew prolongs the lease from before the call. A lapsed one is another one:
// batches of the old one must not be published any more.
func (h *holding) renew(began, lasts time.Duration) {
	if began >= h.lease.until {
		h.lease = &lease{}
	}
	h.lease.until = began + lasts
}

// Obtained is which shards the poller has come to hold.
type Obtained struct {
	// Free are the shards that nobody held, or that were handed over. Lapsed are
	// those whose holder had fallen silent: its lease had to end first.
	Free, Lapsed []int
	// Reclaimed counts the messages of claims that earlier holders had left.
	Reclaimed int
}

// gains gathers what the shards of a queue have obtained. It is safe for
// concurrent use.
type gains struct {
	mu       sync.Mutex
	obtained Obtained
}

// Obtained returns what was obtained since the last call, so that many shards
// that come at once are told of together. The lists are sorted.
func (p *Poller) Obtained() Obtained { return p.common.gains.take() }

func (g *gains) take() Obtained {
	g.mu.Lock()
	defer g.mu.Unlock()
	got := g.obtained
	g.obtained = Obtained{}
	slices.Sort(got.Free)
	slices.Sort(got.Lapsed)
	return got
}

// add notes a shard. The lists are bounded by the number of shards, whoever reads
// them.
func (g *gains) add(shard int, lapsed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := &g.obtained.Free
	if lapsed {
		list = &g.obtained.Lapsed
	}
	if !slices.Contains(*list, shard) {
		*list = append(*list, shard)
	}
}

// reclaimed notes messages of claims that earlier holders had left.
func (g *gains) reclaimed(messages int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.obtained.Reclaimed += messages
}
