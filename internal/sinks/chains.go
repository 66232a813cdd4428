package sinks

import "github.com/delaybridge/delaybridge/internal/engine/message"

// Chains says in which order the messages of a batch may be handed over, for a
// broker that may store a later message and refuse an earlier one: of one Key
// and Topic, only one at a time is without an answer. Messages without a Key
// wait for nobody. It is safe for concurrent use: it does not change.
type Chains struct {
	heads []int
	next  []int // the following message of the same Key and Topic; 0 is none
}

// NewChains sorts the batch into chains.
func NewChains(batch []message.Message) *Chains {
	type chain struct{ key, topic string }
	c := &Chains{heads: make([]int, 0, len(batch)), next: make([]int, len(batch))}
	last := map[chain]int{}
	for i := range batch {
		id := chain{batch[i].Key, batch[i].Topic}
		if before, ok := last[id]; ok {
			c.next[before] = i
		} else {
			c.heads = append(c.heads, i)
		}
		if id.key != "" {
			last[id] = i
		}
	}
	return c
}

// Settle reports the outcome of the i-th message, and returns the next of its chain
// where that may be handed over now. Where the message is Unknown or Unavailable, those
// behind it are Unavailable, and ok is false.
func (c *Chains) Settle(i int, outcome Outcome, outcomes *Outcomes) (next int, ok bool) {
	outcomes.Report(i, outcome)
	if outcome.Class != Unknown && outcome.Class != Unavailable {
		return c.Next(i)
	}
	outcome.Class = Unavailable
	for _, behind := range c.Rest(i) {
		outcomes.Report(behind, outcome)
	}
	return 0, false
}

// Heads are the messages that may be handed over at once, in the order of the batch.
func (c *Chains) Heads() []int { return c.heads }

// Next is the message that may be handed over when the i-th has an answer that
// leaves the way open: acknowledged, or refused by itself. ok is false where it
// was the last of its chain.
func (c *Chains) Next(i int) (next int, ok bool) { return c.next[i], c.next[i] != 0 }

// Rest are the messages behind the i-th in its chain: where that one is Unknown or
// Unavailable, they must not be handed over any more.
func (c *Chains) Rest(i int) []int {
	var rest []int
	for next := c.next[i]; next != 0; next = c.next[next] {
		rest = append(rest, next)
	}
	return rest
}
