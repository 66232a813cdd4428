package window

import "time"

const (
	// target is how long a message shall queue in front of the broker and in it. It
	// bounds what a slow link holds in flight, and is long enough that the link does
	// not run dry between two claims. RFC 6817 allows up to 100 ms.
	target = 100 * time.Millisecond

	// leastRound is the shortest round: a limit that moved after each millisecond
	// would follow every hiccup of a fast broker.
	leastRound = 20 * time.Millisecond

	// The time without our own queue is measured again after so long, or after so
	// many rounds in a row that were too slow although the limit shrank.
	measureEvery = 30 * time.Second
	slowRounds   = 6

	firstMessages, leastMessages, mostMessages = 64, 1, 1 << 16
	firstBytes, leastBytes, mostBytes          = 64 << 10, 1 << 10, 64 << 20
	// What is in flight while a new connection is measured.
	measureMessages, measureBytes = 8, 8 << 10
)

// limit is how many messages and bytes may be in flight. They are two limits that
// learn alike: where messages become larger all at once the bytes bind, where they
// become smaller their number does, so neither change floods the broker.
//
// It moves once a round. A round is as many acknowledgements as were in flight at
// its beginning. With base, the time of an acknowledgement without a queue, and
// took, the mean of the round, Little's law says that the broker deals with
// peak/took a second, so peak × (base+target)/took in flight make a queue of
// target. That is where the limit goes. It grows only as far as what was really in
// flight, peak, carries it, so an idle sink's limit stays where it is.
//
// base is the mean of a round for which the limit was made so small that no queue
// can form, not the least time ever seen: brokers vary, and where the least is far
// below the mean the difference would pass for a queue that no limit makes go
// away. Between two such rounds it may fall but not rise.
type limit struct {
	messages, bytes float64
	base, took      time.Duration
	round           round
	slow            int // rounds in a row whose queueing was above target

	// measured is when base was; resume is the size after that; phase says how far
	// it is, counted down.
	measured time.Time
	resume   load
	phase    int
}

// The phases of measuring base: a round in which what is in flight falls to the
// small limit, one that measures, and two until a round has seen the full limit
// from its beginning to its end.
const (
	drain   = 4
	measure = 3
	steady  = 0
)

type round struct {
	began    time.Time
	of, acks int
	sum      time.Duration
	peak     load // the most that was in flight
}

func newLimit() (l limit) {
	l.restart(load{firstMessages, firstBytes})
	return l
}

// restart begins anew with a connection of which nothing is known.
func (l *limit) restart(size load) {
	*l = limit{took: l.took, phase: measure, resume: size}
	l.set(measureMessages, measureBytes)
}

// collapse begins anew after the whole sink was lost.
func (l *limit) collapse() {
	size := l.size()
	if l.phase >= measure {
		size = l.resume
	}
	l.restart(load{min(size.messages, firstMessages), min(size.bytes, firstBytes)})
}

func (l *limit) size() load { return load{int(l.messages), int(l.bytes)} }

func (l *limit) set(messages, bytes float64) {
	l.messages = min(max(messages, leastMessages), mostMessages)
	l.bytes = min(max(bytes, leastBytes), mostBytes)
}

// holds notes how much is in flight.
func (l *limit) holds(used load) {
	l.round.peak.messages = max(l.round.peak.messages, used.messages)
	l.round.peak.bytes = max(l.round.peak.bytes, used.bytes)
}

// acknowledged learns from n messages that took so long each.
func (l *limit) acknowledged(n int, took time.Duration, used load, now time.Time) {
	r := &l.round
	if r.of == 0 {
		*r = newRound(used, now)
	}
	r.acks += n
	r.sum += time.Duration(n) * took
	if r.acks < r.of || now.Sub(r.began) < leastRound {
		return
	}
	l.took = max(1, r.sum/time.Duration(r.acks))
	l.learn(now)
	*r = newRound(used, now)
}

func newRound(used load, now time.Time) round {
	return round{began: now, of: max(used.messages, 1), peak: used}
}

// learn ends a round.
func (l *limit) learn(now time.Time) {
	if l.phase != measure {
		l.base = min(l.base, l.took)
	}
	if l.phase == steady {
		l.move()
		if l.slow >= slowRounds || now.Sub(l.measured) >= measureEvery {
			l.startMeasuring()
		}
		return
	}
	if l.phase == measure {
		l.base, l.measured, l.slow = l.took, now, 0
		l.set(float64(l.resume.messages), float64(l.resume.bytes))
	}
	l.phase--
}

// startMeasuring lets half of what the broker has in work without a queue stay in flight.
func (l *limit) startMeasuring() {
	l.phase, l.resume = drain, l.size()
	part := float64(l.base) / float64(l.took) / 2
	l.set(l.messages*part, l.bytes*part)
}

// move changes the limit after a round.
func (l *limit) move() {
	queued := l.took - l.base
	factor := float64(l.base+target) / float64(l.took)
	messages, bytes := float64(l.round.peak.messages), float64(l.round.peak.bytes)
	if queued > target {
		l.slow++
		// Never by more than half at once: one hiccup is no slow broker (RFC 6817).
		l.set(max(min(l.messages, messages*factor), l.messages/2), max(min(l.bytes, bytes*factor), l.bytes/2))
		return
	}
	l.slow = 0
	if queued < target/4 {
		factor = 2 // As in a slow start: how far it is, cannot be seen without a queue.
	} else {
		factor = min(2, 1+(factor-1)/2)
	}
	l.set(max(l.messages, messages*factor), max(l.bytes, bytes*factor))
}
