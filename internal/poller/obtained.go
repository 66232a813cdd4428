package poller

import (
	"slices"
	"time"
)

// Obtained is which shards the poller has come to hold.
type Obtained struct {
	// Free are the shards that nobody held, or that were handed over. Lapsed are
	// those whose holder had fallen silent: its lease had to end first.
	Free, Lapsed []int
	// Reclaimed counts the messages of claims that earlier holders had left.
	Reclaimed int
}

// Obtained returns what was obtained since the last call, so that many shards
// that come at once are told of together. The lists are sorted.
func (p *Poller) Obtained() Obtained {
	c := p.common
	c.mu.Lock()
	defer c.mu.Unlock()
	got := c.obtained
	c.obtained = Obtained{}
	slices.Sort(got.Free)
	slices.Sort(got.Lapsed)
	return got
}

// holding is what a shard's loop knows of who holds it.
type holding struct {
	// held: another instance holds the shard, until which quietUntil is the next
	// look; heldAt is when it said so.
	held   bool
	heldAt time.Duration
	// mine: the last claim was granted. heldUntil is when the lease of another
	// ends at the earliest, as its last answer told; zero if it told of none.
	// left: that other one has left claims behind.
	mine, left bool
	heldUntil  time.Duration
}

// isOthers notes that another instance holds the shard.
func (h *holding) isOthers(began, received, lasts time.Duration) {
	h.held, h.mine, h.heldAt, h.heldUntil = true, false, received, began+lasts
}

// isMine notes that a claim was granted.
func (s *shard) isMine(received time.Duration) {
	if s.mine {
		return
	}
	lapsed := s.left
	if s.heldUntil > 0 {
		lapsed = received >= s.heldUntil
	}
	s.holding = holding{mine: true}
	s.common.mu.Lock()
	defer s.common.mu.Unlock()
	if got := &s.common.obtained; lapsed {
		got.Lapsed = add(got.Lapsed, s.index)
	} else {
		got.Free = add(got.Free, s.index)
	}
}

func (c *common) reclaimedForeign(messages int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.obtained.Reclaimed += messages
}

// add keeps the list bounded by the number of shards, whoever reads it.
func add(list []int, shard int) []int {
	if slices.Contains(list, shard) {
		return list
	}
	return append(list, shard)
}
