package rate

import (
	"slices"
	"time"
)

// most is how many messages a claim takes at most.
const most = 500

// Limits say how many messages a second are published at most, over all shards: of
// the queue, and of topics. 0 is no limit.
type Limits struct {
	Messages int
	Topics   map[string]int
}

// limit is what this process has of a rate. It is guarded by [Limiter].mu.
type limit struct {
	perSecond int
	free      float64 // messages that may be claimed; below 0 some were in advance
	back      int     // free from the next look at the bucket on
	owed      float64 // of what came in while the bucket was silent, what it does not know of yet
	isUsed    bool    // since the bucket was asked
	waiting   []waiter
	offers    map[*Quota]offer
	behind    map[*Quota]time.Duration // since when, see note
}

// waiter is a shard that waits for a claim of as many messages as it had missed when it came, or fewer.
type waiter struct {
	quota            *Quota
	missed, inFlight int
}

// offer is what a shard that has waited may claim, if it comes for it in time.
type offer struct {
	messages int
	until    time.Duration
}

func newLimit(perSecond int) *limit {
	return &limit{perSecond: perSecond, offers: make(map[*Quota]offer), behind: make(map[*Quota]time.Duration)}
}

// isBusy reports whether anything was used since the bucket was asked, or is waited for.
func (l *limit) isBusy() bool { return l.isUsed || len(l.waiting)+len(l.offers)+l.back > 0 }

// take takes up to that many messages, but nothing that others wait for, and no fewer than least
// unless the shard has waited.
func (l *limit) take(q *Quota, messages, least int) int {
	kept := l.offers[q].messages
	l.drop(q)
	n := kept
	if len(l.waiting) == 0 || l.free < float64(n) { // Or what was kept is owed.
		n = int(l.free)
	}
	if n = max(0, min(messages, n)); kept == 0 && n < min(messages, least) {
		return 0
	}
	l.add(-n)
	return n
}

// note notes whether a claim that took from the limit at that instant has left messages behind that are due.
func (l *limit) note(q *Quota, at time.Duration, isBehind bool) {
	if delete(l.behind, q); isBehind {
		l.behind[q] = at
	}
}

// missed is what has come in since the last claim of a shard that is behind, by then, a second's worth at most. With
// less the next claim is not worth its time: where claims take long, the rate would not be reached.
func (l *limit) missed(q *Quota, by time.Duration) int {
	at, isBehind := l.behind[q]
	if !isBehind {
		return 0
	}
	return min(most, int(float64(l.perSecond)*min(1, (by-at).Seconds())))
}

// add gives messages back, or takes them, below 0, in any case.
func (l *limit) add(messages int) {
	l.free += float64(messages)
	l.isUsed = l.isUsed || messages != 0
}

// giveBack takes messages that are given back to the bucket.
func (l *limit) giveBack(messages int) { l.free -= float64(messages) }

// grant adds messages that were granted, once what is owed is paid.
func (l *limit) grant(messages int) {
	l.free += float64(messages)
	l.pay(float64(messages))
}

// pay pays what is owed, with so many of the free messages at most.
func (l *limit) pay(messages float64) {
	paid := max(0, min(l.owed, messages))
	l.owed -= paid
	l.free -= paid
}

// giveLater gives messages back from the next look at the bucket on.
func (l *limit) giveLater(messages int) { l.back += messages }

// clearUse says that the bucket is asked now.
func (l *limit) clearUse() { l.isUsed = false }

// accrue has a part come in, a second's worth at most. The bucket saves up the same part meanwhile, a second's
// worth at most, so that much is owed to it.
func (l *limit) accrue(each, seconds float64) {
	most := max(1, each)
	before := l.free
	l.free = max(l.free, min(l.free+each*seconds, most))
	l.owed = max(l.owed, min(l.owed+l.free-before, most))
}

// wait puts the shard into the line, once. Messages of a Key go from claim to claim: the longer
// the answers take, and so the more is in flight, the larger the next claim has to be.
func (l *limit) wait(q *Quota, inFlight int, now time.Duration) {
	i := slices.IndexFunc(l.waiting, func(w waiter) bool { return w.quota == q })
	if i < 0 {
		i = len(l.waiting)
		l.waiting = append(l.waiting, waiter{quota: q, missed: l.missed(q, now+askEvery)})
	}
	l.waiting[i].inFlight = inFlight
}

// leave takes the shard out of the line.
func (l *limit) leave(q *Quota) {
	l.waiting = slices.DeleteFunc(l.waiting, func(w waiter) bool { return w.quota == q })
	delete(l.behind, q)
	l.drop(q)
}

// drop frees what is kept for a shard.
func (l *limit) drop(q *Quota) {
	l.free += float64(l.offers[q].messages)
	delete(l.offers, q)
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
		l.offers[q] = offer{n, until}
		q.wake()
	}
}

// worth is how many messages the first that waits is handed at least: no more than what comes
// in for it in a second.
func (l *limit) worth(part float64) int {
	each, first := float64(l.perSecond)*part/float64(len(l.waiting)), l.waiting[0]
	return max(1, min(int(each), most, max(first.missed, first.inFlight/2, int(worthClaim*each))))
}

// lapse frees what shards have not come for, and what went back. Who comes later takes what there is: it may always
// be late.
func (l *limit) lapse(now time.Duration) {
	l.add(l.back)
	l.back = 0
	for q, k := range l.offers {
		if now >= k.until {
			l.drop(q)
			delete(l.behind, q)
			l.isUsed = true
		}
	}
}
