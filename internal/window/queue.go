package window

import "slices"

const (
	// A grant is a share's fair part of the window, or, where there are many shares,
	// up to worthwhile messages (and an eighth of the window): claims of a few
	// messages each would cost Redis more than they are worth.
	worthwhile = 32
	leastParts = 8
	// While less than this is in flight, a share gets a few messages in any case.
	littleMessages, littleBytes = leastMessages / 4, leastBytes / 4
	fewMessages, fewBytes       = 8, 8 << 10
)

// part is what one of so many shares gets at a time.
func part(size, shares int) int {
	return max(1, size/max(1, shares), min(worthwhile, size/leastParts))
}

// grant is how much of what a share wants it may have now; nothing where that
// would be too little to be worth a claim. Where nothing is in flight, there is
// always something: what is asked for is never more than the whole window.
func (w *Window) grant(want, shares int) load {
	size := w.limit.size()
	most := min(want, part(size.messages, shares))
	free := size.minus(w.inFlight).minus(w.kept)
	// Twice the bytes that so many messages usually have: what is not used is given
	// back after the claim.
	bytes := max(1, min(size.bytes, 2*size.bytes/size.messages*most))
	switch {
	case free.messages >= (most+1)/2 && free.bytes >= (bytes+3)/4:
		return load{min(most, free.messages), min(bytes, free.bytes)}
	case w.inFlight.messages < littleMessages && w.inFlight.bytes < littleBytes:
		return load{min(want, fewMessages), fewBytes}
	default:
		return load{}
	}
}

// next is whose turn it is: that of the share which holds the least, of several
// the first. So a queue with little to publish does not wait behind one with much,
// and a share whose messages hang keeps no more than its part from the others.
func (w *Window) next() int {
	least := 0
	for i, s := range w.waiting {
		if s.held() < w.waiting[least].held() {
			least = i
		}
	}
	return least
}

// serve gives what is free to those that wait, in turn. It returns whom to wake.
func (w *Window) serve() (served []*Share) {
	for len(w.waiting) > 0 && !w.health.down {
		i := w.next()
		s := w.waiting[i]
		granted := w.grant(s.want, w.active)
		if granted.messages == 0 {
			break
		}
		s.grant(granted)
		w.waiting = slices.Delete(w.waiting, i, i+1)
		served = append(served, s)
	}
	return served
}

// hold notes what a share holds instead of what it held.
func (w *Window) hold(inFlight, inFlightNow, kept, keptNow load) {
	w.inFlight = w.inFlight.plus(inFlightNow).minus(inFlight)
	w.kept = w.kept.plus(keptNow).minus(kept)
	w.limit.holds(w.inFlight)
}

// count keeps the number of active shares.
func (w *Window) count(isActive, wasActive bool) {
	switch {
	case isActive && !wasActive:
		w.active++
	case wasActive && !isActive:
		w.active--
	}
}

// lineUp lets a share wait for its turn, stepOut ends that.
func (w *Window) lineUp(s *Share) { w.waiting = append(w.waiting, s) }

func (w *Window) stepOut(s *Share) {
	w.waiting = slices.DeleteFunc(w.waiting, func(other *Share) bool { return other == s })
}

// activeWith is how many shares are active with this one.
func (w *Window) activeWith(s *Share) int {
	if s.isActive() {
		return w.active
	}
	return w.active + 1
}

func wake(shares []*Share) {
	for _, s := range shares {
		s.wake()
	}
}
