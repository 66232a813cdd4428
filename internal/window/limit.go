package window

import "time"

// limit is the number of messages and bytes that may be in flight, and what it
// is learned from. A round is as many acknowledgements as were in flight at its
// beginning: the limit moves once a round.
type limit struct {
	size  float64 // messages
	mean  float64 // bytes of a message
	slow  bool    // the slow start is over
	short bool    // somebody was refused in this round

	base, before time.Duration // least acknowledgement time of this half minute and the one before
	half         time.Time
	smooth       time.Duration

	acks, round int
	sum         time.Duration
	// resume, where not 0, is the size after a round that is kept small so that
	// the least time can be seen without the queue that we make ourselves.
	resume float64
}

func newLimit() limit { return limit{size: firstMessages, mean: firstBytes / firstMessages} }

func (l *limit) messages() int { return int(l.size) }

// bytes is what so many messages of the usual size have: where they become
// larger all at once, less of them are in flight.
func (l *limit) bytes() int {
	return int(min(max(l.size*l.mean, leastBytes), mostBytes))
}

// acknowledged learns from n messages that took so long each, of so many bytes.
func (l *limit) acknowledged(n, bytes, inFlight int, took time.Duration, now time.Time) {
	const share = 64 // of one message in the mean
	weight := min(1, float64(n)/share)
	l.mean += weight * (float64(bytes)/float64(n) - l.mean)
	l.learnBase(took, now)
	if l.acks == 0 {
		l.round = max(inFlight, 1)
	}
	l.acks += n
	l.sum += time.Duration(n) * took
	if l.acks < l.round {
		return
	}
	l.smooth = l.sum / time.Duration(l.acks)
	if l.resume > 0 {
		l.size, l.resume = l.resume, 0
	} else {
		l.move(l.smooth - min(l.base, l.before))
	}
	l.acks, l.sum, l.short = 0, 0, false
}

// learnBase keeps the least time of the last half minute and the one before.
func (l *limit) learnBase(took time.Duration, now time.Time) {
	switch {
	case l.half.IsZero():
		l.base, l.before, l.half = took, took, now
	case now.Sub(l.half) >= baseFor/2:
		l.before, l.base, l.half = l.base, took, now
		// Else our own queue would pass for the broker's time, more each minute
		// (LEDBAT++, draft-irtf-iccrg-ledbat-plus-plus, slows down for the same reason).
		if l.slow && l.resume == 0 {
			l.resume, l.size = l.size, max(leastMessages, l.size/8)
		}
	default:
		l.base = min(l.base, took)
	}
}

// move changes the limit after a round in which messages queued for so long.
func (l *limit) move(queued time.Duration) {
	off := float64(target-queued) / float64(target)
	switch {
	case off < 0:
		// RFC 6817 never shrinks by more than half a round.
		l.slow = true
		l.size *= 1 + max(off, -1)/2
	case !l.short: // The limit is not what holds the load back.
		return
	case !l.slow:
		l.size *= 2
		l.slow = off < 0.5
	default:
		l.size += max(1, l.size*off/4)
	}
	l.size = min(max(l.size, leastMessages), mostMessages)
}

// collapse begins anew after the whole broker was lost.
func (l *limit) collapse() {
	l.size, l.resume, l.slow, l.acks, l.sum = min(l.size, firstMessages), 0, false, 0, 0
}
