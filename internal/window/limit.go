package window

import "time"

const (
	// aloneTarget is the intended queueing delay of a message, before and in the broker, where one queue
	// uses the sink. It bounds what a slow link holds in flight, and is long enough that the link does
	// not run dry between two claims. RFC 6817 allows up to 100 ms, LEDBAT++ uses 60. Where several do,
	// all of them wait that long behind the busiest one: sharedTarget costs it some of its rate. Behind a
	// long way that hardly matters, and a short queue is lost in its noise: there it is a part of base.
	aloneTarget, sharedTarget = 60 * time.Millisecond, 15 * time.Millisecond
	sharedPart                = 4

	// leastRound is the shortest round: a limit that moved after each millisecond
	// would follow every hiccup of a fast broker.
	leastRound = 20 * time.Millisecond
	// smoothFor is the time over which the mean acknowledgement time is smoothed, and
	// for which base is measured, since brokers' own times vary.
	smoothFor = time.Second

	// nearClaim is how long a claim takes from a Redis nearby. What is on its way for so short a time is part
	// of the limit itself.
	nearClaim = 2 * time.Millisecond
	// claimsFor is the time over which what is on its way from Redis is smoothed: some claims of a Redis that
	// is far away.
	claimsFor = 200 * time.Millisecond

	// base is measured again after measureEvery, or after that many rounds in a
	// row that were too slow although the limit shrank.
	measureEvery = time.Minute
	slowRounds   = 6

	mostMessages, mostBytes = 1 << 16, 64 << 20
	// This much may always be in flight, and a new connection begins with it. Less
	// would not help a broker, but it would delay the messages: if acknowledgements
	// are late because the machine is busy, no limit helps. A link of 100 kB/s
	// carries it within a second.
	leastMessages, leastBytes = 256, 64 << 10
)

// limit is how many messages and bytes may be in flight. The two limits learn
// alike: if messages suddenly become larger, the bytes bind; if they become
// smaller, their number does. So neither change floods the broker.
//
// It moves once a round, which is as many acknowledgements as were in flight at its
// beginning. Let took be their mean time, base the time without a queue, and
// took-base the queueing. Above target, the broker is always busy, and rate ×
// (base+target) in flight would make a queue of target, so the limit shrinks to
// that. Below target, it grows in proportion to what the queue lacks, but only in
// relation to what was really in flight, so an idle sink's limit does not grow;
// with next to no queue it doubles.
//
// What has room in the window and is still on its way from Redis makes no queue at the
// broker, and if claims take long, that is most of it. So the limit has as much on top
// as was on its way in the mean, in claims that found all that they had room for. That grows
// with each claim while Redis is what a drain waits for, until it is on its way for
// aloneTarget: larger claims cost Redis less, but they delay its other calls.
//
// base is the mean over a time in which the limit was so small that no queue could
// form, except that of the least limit. It is not the least time ever seen: brokers
// vary, and if the least is far below the mean, the difference would look like a
// queue that no limit removes. Between two measurements base may fall slowly, but
// not rise.
type limit struct {
	messages, bytes float64
	onWay           float64 // messages on their way from Redis, in the mean
	target          time.Duration
	base            time.Duration
	took            time.Duration // the mean of the last round
	smooth          time.Duration // of the last rounds
	round           round
	slow            int // rounds in a row whose queueing was above target

	// measured is when base was measured, zero for a new connection; resume is the
	// size after a measurement; phase counts down through the measurement.
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
	// claimed is how long messages were on their way from Redis, all together.
	claimed time.Duration
}

func newLimit() (l limit) {
	l.restart()
	return l
}

// restart starts again with a new connection, of which nothing is known.
func (l *limit) restart() {
	*l = limit{target: aloneTarget, took: l.took, phase: measure}
	l.set(0, 0)
}

// size is the whole limit: a claim has room for twice the bytes that its messages usually have.
func (l *limit) size() load {
	return load{int(min(l.messages+l.onWay, mostMessages)), int(min(l.bytes+2*l.onWay*l.each(), mostBytes))}
}

// each is how many bytes the limit has for a message.
func (l *limit) each() float64 { return l.bytes / l.messages }

func (l *limit) set(messages, bytes float64) {
	l.messages = min(max(messages, leastMessages), mostMessages)
	l.bytes = min(max(bytes, leastBytes), mostBytes)
}

// holds records how much is in flight.
func (l *limit) holds(inFlight load) { l.round.peak = max(l.round.peak, inFlight.messages) }

// claimed learns from a claim that found all that it had room for.
func (l *limit) claimed(messages int, took time.Duration) {
	l.round.claimed += time.Duration(messages) * max(0, min(took, aloneTarget)-nearClaim)
}

// acknowledged learns from messages that took that long each. At the end of a round it asks whether several queues
// use the sink.
func (l *limit) acknowledged(acked load, took time.Duration, inFlight load, now time.Time, isShared func(now time.Time) bool) {
	r := &l.round
	if r.of == 0 {
		*r = newRound(inFlight, now)
	}
	r.acked = r.acked.plus(acked)
	r.sum += time.Duration(acked.messages) * took
	if lasted := now.Sub(r.began); l.isRound(lasted) {
		l.took = max(1, r.sum/time.Duration(r.acked.messages))
		if l.target = aloneTarget; isShared(now) {
			l.target = min(aloneTarget, max(sharedTarget, l.base/sharedPart))
		}
		l.onWay += min(1, float64(lasted)/float64(claimsFor)) * (float64(r.claimed)/float64(lasted) - l.onWay)
		l.learn(now, lasted)
		*r = newRound(inFlight, now)
	}
}

func newRound(inFlight load, now time.Time) round {
	return round{began: now, of: max(inFlight.messages, 1), peak: inFlight.messages}
}

// isRound reports whether the round is over. If acknowledgements come late, it
// does not wait for all of them, or the limit would shrink too late: a link that
// became slow has far too much in flight already.
func (l *limit) isRound(lasted time.Duration) bool {
	r := &l.round
	switch {
	case l.phase == measure && !l.measured.IsZero():
		return r.acked.messages >= r.of && lasted >= smoothFor
	case l.phase >= measure:
		return r.acked.messages >= r.of && lasted >= leastRound
	default:
		return r.acked.messages >= r.of && lasted >= leastRound || lasted >= l.base+2*l.target
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

// smoothen follows the rounds' mean, and lets base fall to it: at once if the broker
// or the link has become much faster, before the limit grows to the old base.
func (l *limit) smoothen(lasted time.Duration) {
	weight := min(1, lasted.Seconds()/(2*smoothFor).Seconds())
	if l.took < l.base/4 {
		weight = 1
	}
	l.smooth += time.Duration(weight * float64(l.took-l.smooth))
	l.base = min(l.base, l.smooth)
}

// startMeasuring keeps half of what the broker works on without a queue in flight.
func (l *limit) startMeasuring() {
	l.phase, l.resume = drain, load{int(l.messages), int(l.bytes)}
	part := float64(l.base) / float64(l.took) / 2
	l.set(l.messages*part, l.bytes*part)
}

// move changes the limit after a round.
func (l *limit) move(lasted time.Duration) {
	queued := l.took - l.base
	if queued > l.target {
		l.slow++
		// Never by more than half at once: one hiccup is no slow broker (RFC 6817).
		rounds := float64(l.base+l.target) / float64(lasted)
		messages, bytes := float64(l.round.acked.messages)*rounds, float64(l.round.acked.bytes)*rounds
		l.set(min(l.messages, max(messages, l.messages/2)), min(l.bytes, max(bytes, l.bytes/2)))
		return
	}
	l.slow = 0
	factor := 2. // As in slow start: without a queue, the distance to the right size is not visible.
	if queued >= l.target/4 {
		factor = min(2, 1+float64(l.target-queued)/float64(l.took)/2)
	}
	peak, each := float64(l.round.peak), float64(l.round.acked.bytes)/float64(l.round.acked.messages)
	l.set(max(l.messages, peak*factor), max(l.bytes, peak*each*factor))
}
