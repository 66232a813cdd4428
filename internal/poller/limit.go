package poller

import (
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// reasonRate is why messages of a topic are parked that come faster than its rate.
const reasonRate sinks.Reason = "rate"

// Rates say how many messages a second are published at the most, over all shards: of
// the queue, and of topics. 0 is no limit.
type Rates struct {
	Messages int
	Topics   map[string]int
}

// limit is what this process has of a rate. It is guarded by [rates].mu.
type limit struct {
	perSecond int
	free      float64 // messages that may be claimed; below 0 some were in advance
	back      int     // free from the next look at the bucket on
	isUsed    bool    // since the bucket was asked
	waiting   []waiter
	kept      map[*quota]kept
}

// waiter is a shard that waits for a claim of so many messages, or fewer.
type waiter struct {
	quota *quota
	worth int
}

// kept is what a shard that has waited may claim, if it comes for it in time.
type kept struct {
	messages int
	until    time.Duration
}

func newLimit(perSecond int) *limit {
	return &limit{perSecond: perSecond, kept: make(map[*quota]kept)}
}

// isBusy reports whether anything was used since the bucket was asked, or is waited for.
func (l *limit) isBusy() bool { return l.isUsed || len(l.waiting)+len(l.kept)+l.back > 0 }

// take takes up to so many messages. Nobody takes what others wait for.
func (l *limit) take(q *quota, messages int) int {
	most := l.kept[q].messages
	l.drop(q)
	if len(l.waiting) == 0 || l.free < float64(most) { // Or what was kept is owed.
		most = int(l.free)
	}
	n := max(0, min(messages, most))
	l.add(-n)
	return n
}

// add gives messages back, or takes them, below 0, in any case.
func (l *limit) add(messages int) {
	l.free += float64(messages)
	l.isUsed = l.isUsed || messages != 0
}

// wait has the shard stand in line, once. It has so many messages in flight, and those of a Key
// go from claim to claim: the longer the answers take, the larger the next claim has to be.
func (l *limit) wait(q *quota, inFlight int) {
	i := slices.IndexFunc(l.waiting, func(w waiter) bool { return w.quota == q })
	if i < 0 {
		i = len(l.waiting)
		l.waiting = append(l.waiting, waiter{quota: q})
	}
	l.waiting[i].worth = inFlight / 2
}

// leave takes the shard out of the line.
func (l *limit) leave(q *quota) {
	l.waiting = slices.DeleteFunc(l.waiting, func(w waiter) bool { return w.quota == q })
	l.drop(q)
}

// drop frees what is kept for a shard.
func (l *limit) drop(q *quota) {
	l.free += float64(l.kept[q].messages)
	delete(l.kept, q)
}

// handOut keeps what is free for the shards that wait, an even part for each, if that is
// worth a claim; what is little goes to those that have waited the longest. part is which part of
// the rate comes in, as far as is known.
func (l *limit) handOut(part float64, until time.Duration) {
	for len(l.waiting) > 0 {
		q, n := l.waiting[0].quota, max(l.worth(part), int(l.free)/len(l.waiting))
		if l.free < float64(n) {
			return
		}
		l.waiting = slices.Delete(l.waiting, 0, 1)
		l.free -= float64(n)
		l.kept[q] = kept{n, until}
		q.wake()
	}
}

// worth is how many messages the first that waits is handed at the least: no more than what comes
// in for it in a second.
func (l *limit) worth(part float64) int {
	each := float64(l.perSecond) * part / float64(len(l.waiting))
	return max(1, min(int(each), maxBatch, max(l.waiting[0].worth, int(worthClaim*each))))
}

// lapse frees what shards have not come for, and what went back.
func (l *limit) lapse(now time.Duration) {
	l.add(l.back)
	l.back = 0
	for q, k := range l.kept {
		if now >= k.until {
			l.drop(q)
			l.isUsed = true
		}
	}
}

// quota is a shard's way to the rates of its queue. What is taken counts until it is given
// back. Its methods are safe for concurrent use, and wait for nobody.
type quota struct {
	rates *rates
	shard int
	wake  func()
	// isHeld is the loop's own: what holds has noted last.
	isHeld bool
}

// take returns how many of so many messages of a topic may be claimed, of the whole queue
// where the topic is empty. Where that is none, the shard is woken when there are some;
// inFlight is how many it has in flight.
func (q *quota) take(topic string, messages, inFlight int) (n int) {
	n = messages
	q.rates.with(topic, func(l *limit) {
		if n = l.take(q, messages); n == 0 {
			l.wait(q, inFlight)
		}
	})
	return n
}

// mayTake reports whether there are any. Where there are none, the shard is woken, as by take.
func (q *quota) mayTake(topic string, inFlight int) bool {
	may := true
	q.rates.with(topic, func(l *limit) {
		if may = l.kept[q].messages > 0 || l.free >= 1 && len(l.waiting) == 0; !may {
			l.wait(q, inFlight)
		}
	})
	return may
}

// takeOne takes one message of a topic that was claimed already. It waits for none.
func (q *quota) takeOne(topic string) (may bool) {
	may = true
	q.rates.with(topic, func(l *limit) { may = l.kept[q].messages == 0 && l.take(q, 1) == 1 })
	return may
}

// give gives messages back.
func (q *quota) give(topic string, messages int) {
	if messages != 0 {
		q.rates.with(topic, func(l *limit) { l.add(messages) })
	}
}

// spend takes those messages of a claim from their topics that are not parked, in any case.
func (q *quota) spend(claimed []message.Claimed, parked []parking) {
	for i := range claimed {
		if len(parked) > 0 && parked[0].index == i {
			parked = parked[1:]
		} else if claimed[i].Err == nil {
			q.give(claimed[i].Topic, -1)
		}
	}
}

// refund gives those messages of a claim back that are not handed to the sink. Those that go
// back to wait may be claimed again at once, for the same end: what they have taken is free a
// moment later.
func (q *quota) refund(claimed []message.Claimed, indices []int, isHeldBack bool) {
	if !q.rates.isAny.Load() {
		return
	}
	give := q.give
	if isHeldBack {
		give = func(topic string, n int) { q.rates.with(topic, func(l *limit) { l.back += n }) }
	}
	give("", len(indices))
	for _, i := range indices {
		if claimed[i].Err == nil {
			give(claimed[i].Topic, 1)
		}
	}
}

// holds notes whether the shard is ours: so large is our part of the rates, where the bucket
// does not answer.
func (q *quota) holds(isHeld bool) {
	if isHeld != q.isHeld {
		q.isHeld = isHeld
		q.rates.hold(q.shard, isHeld)
	}
}

// leave gives back what is kept for the shard.
func (q *quota) leave() { q.rates.leave(q) }

// allowance is what a claim without an answer may take by the rates.
type allowance struct {
	topic    string // whose rate it has been taken from, beside the queue's
	messages int
}

// allow takes from the rates what a claim may take: from that of the queue, and for a slot of
// a topic from its own.
func (q *quota) allow(topic string, messages, inFlight int) allowance {
	a := allowance{topic, q.take("", messages, inFlight)}
	if topic != "" && a.messages > 0 {
		n := q.take(topic, a.messages, inFlight)
		q.give("", a.messages-n)
		a.messages = n
	}
	return a
}

// use gives an allowance back but for what is published. The topics of messages are counted
// one by one.
func (q *quota) use(a allowance, published int) {
	q.give("", a.messages-published)
	if a.topic != "" {
		q.give(a.topic, a.messages)
	}
}

// throttle returns the route in whose slot a message has to wait that has come faster
// than the rate of its topic; nil where it may be published.
func (rs *routes) throttle(name sinks.Route, topic string, redisNow time.Time) *route {
	if rs.quota.takeOne(topic) {
		return nil
	}
	r := rs.named(name, redisNow)
	if rs.byName[name] == r { // It shares no slot.
		r.topic, r.state, r.since, r.size = topic, routeBack, redisNow, maxBatch
		r.cause = sinks.Failed(sinks.Unavailable, reasonRate, nil)
	}
	rs.send(r, topic)
	return r
}
