package poller

// ramp limits claims after a panic of the sink: a message that makes it panic is
// then soon alone, and punished alone.
type ramp struct {
	size int // how many messages to take at a time; 0 is no limit
}

// learn draws the conclusions from a batch that has ended.
func (r *ramp) learn(b *batch, most int) {
	switch {
	case b.panicked:
		r.size = 1
	case r.size > 0 && b.answered:
		r.size = max(r.size, len(b.claim.Messages)) * rampFactor
		if r.size >= most {
			r.size = 0
		}
	}
}

// room is how many messages may be taken; isAlone: nothing is in flight.
func (r *ramp) room(isAlone bool) int {
	switch {
	case r.size == 0:
		return maxBatch
	case isAlone:
		return r.size
	default:
		return 0
	}
}
