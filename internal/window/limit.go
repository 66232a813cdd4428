package window

import "time"

const (
	// target is how long a message shall queue in front of the broker and in it. It
	// bounds what a slow link holds in flight, and is long enough that the link does
	// not run dry between two claims. All queues that use the sink wait so long
	// behind the busiest one. RFC 6817 allows up to 100 ms, LEDBAT++ takes 60.
	target = 60 * time.Millisecond

	// leastRound is the shortest round: a limit that moved after each millisecond
	// would follow every hiccup of a fast broker.
	leastRound = 20 * time.Millisecond
	// smoothFor is what the mean time of an acknowledgement is smoothed over, and how
	// long base is measured: brokers' own times vary.
	smoothFor = time.Second

	// base is measured again after so long, or after so many rounds in a row that
	// were too slow although the limit shrank.
	measureEvery = time.Minute
	slowRounds   = 6

	mostMessages, mostBytes = 1 << 16, 64 << 20
	// So little may always be in flight, and a new connection begins with it. Less
	// would make no difference to a broker, but to those who wait for the messages:
	// where acknowledgements are late because the machine is busy, no limit helps.
	// A link of 100 kB/s carries it within a second.
	leastMessages, leastBytes = 256, 64 << 10
)

// limit is how many messages and bytes may be in flight. They are two limits that
// learn alike: where messages become larger all at once the bytes bind, where they
// become smaller their number does, so neither change floods the broker.
//
// It moves once a round, which is as many acknowledgements as were in flight at
// its beginning. Let took be their mean time, base the time without a queue, and
// took-base the queueing. Above target, the broker is busy all the time, and rate ×
// (base+target) in flight would make a queue of target: there the limit shrinks to.
// Below, it grows in proportion to what the queue lacks, but only as far as what
// was really in flight carries it, so an idle sink's limit stays where it is; with
// next to no queue it doubles.
//
// base is the mean of a time for which the limit was made so small that no queue
// can form, or none but that of the least limit; not the least time ever seen:
// brokers vary, and where the least is far below the mean the difference would pass
// for a queue that no limit makes go away. Between two such times it may fall,
// slowly, but not rise.
type limit struct {
	messages, bytes float64
	base            time.Duration
	took            time.Duration // the mean of the last round
	smooth          time.Duration // of the last rounds
	round           round
	slow            int // rounds in a row whose queueing was above target

	// measured is when base was measured, zero for a new connection; resume is the
	// size after a measurement; phase says how far it is, counted down.
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
	began time.Time
	of    int
	acked load
	sum   time.Duration
	peak  int // the most messages that were in flight
}

func newLimit() (l limit) {
	l.restart()
	return l
}

// restart begins anew with a connection of which nothing is known.
func (l *limit) restart() {
	*l = limit{took: l.took, phase: measure}
	l.set(0, 0)
}

func (l *limit) size() load { return load{int(l.messages), int(l.bytes)} }

func (l *limit) set(messages, bytes float64) {
	l.messages = min(max(messages, leastMessages), mostMessages)
	l.bytes = min(max(bytes, leastBytes), mostBytes)
}

// holds notes how much is in flight.
func (l *limit) holds(inFlight load) { l.round.peak = max(l.round.peak, inFlight.messages) }

// acknowledged learns from messages that took so long each.
func (l *limit) acknowledged(acked load, took time.Duration, inFlight load, now time.Time) {
	r := &l.round
	if r.of == 0 {
		*r = newRound(inFlight, now)
	}
	r.acked = r.acked.plus(acked)
	r.sum += time.Duration(acked.messages) * took
	if lasted := now.Sub(r.began); l.isRound(lasted) {
		l.took = max(1, r.sum/time.Duration(r.acked.messages))
		l.learn(now, lasted)
		*r = newRound(inFlight, now)
	}
}

func newRound(inFlight load, now time.Time) round {
	return round{began: now, of: max(inFlight.messages, 1), peak: inFlight.messages}
}

// isRound reports whether the round is over. Where acknowledgements come late, it
// does not wait for them all, or the limit would shrink too late: a link that
// became slow has far too much in flight already.
func (l *limit) isRound(lasted time.Duration) bool {
	r := &l.round
	switch {
	case l.phase == measure && !l.measured.IsZero():
		return r.acked.messages >= r.of && lasted >= smoothFor
	case l.phase >= measure:
		return r.acked.messages >= r.of && lasted >= leastRound
	default:
		return r.acked.messages >= r.of && lasted >= leastRound || lasted >= l.base+2*target
	}
}

// learn ends a round.
func (l *limit) learn(now time.Time, lasted time.Duration) {
	switch l.phase {
	case steady:
		l.smoothen(lasted)
		l.move(lasted)
		if l.slow >= slowRounds || now.Sub(l.measured) >= measureEvery {
			l.startMeasuring()
		}
		return
	case measure:
		l.base, l.smooth = l.took, l.took
		l.measured, l.slow = now, 0
		l.set(float64(l.resume.messages), float64(l.resume.bytes))
	case drain:
	default:
		l.smoothen(lasted)
	}
	l.phase--
}

// smoothen follows the rounds' mean, and lets base fall to it: at once where the
// broker or the link has become much faster, before the limit grows to the old base.
func (l *limit) smoothen(lasted time.Duration) {
	weight := min(1, lasted.Seconds()/(2*smoothFor).Seconds())
	if l.took < l.base/4 {
		weight = 1
	}
	l.smooth += time.Duration(weight * float64(l.took-l.smooth))
	l.base = min(l.base, l.smooth)
}

// startMeasuring lets half of what the broker has in work without a queue stay in flight.
func (l *limit) startMeasuring() {
	l.phase, l.resume = drain, l.size()
	part := float64(l.base) / float64(l.took) / 2
	l.set(l.messages*part, l.bytes*part)
}

// move changes the limit after a round.
func (l *limit) move(lasted time.Duration) {
	queued := l.took - l.base
	if queued > target {
		l.slow++
		// Never by more than half at once: one hiccup is no slow broker (RFC 6817).
		rounds := float64(l.base+target) / float64(lasted)
		messages, bytes := float64(l.round.acked.messages)*rounds, float64(l.round.acked.bytes)*rounds
		l.set(min(l.messages, max(messages, l.messages/2)), min(l.bytes, max(bytes, l.bytes/2)))
		return
	}
	l.slow = 0
	factor := 2. // As in a slow start: how far it is, cannot be seen without a queue.
	if queued >= target/4 {
		factor = min(2, 1+float64(target-queued)/float64(l.took)/2)
	}
	peak, each := float64(l.round.peak), float64(l.round.acked.bytes)/float64(l.round.acked.messages)
	l.set(max(l.messages, peak*factor), max(l.bytes, peak*each*factor))
}
