package rate

import "time"

// Quota is a shard's way to the rates of its queue. What is taken counts until it is given
// back. Its methods are safe for concurrent use, and do not wait.
type Quota struct {
	rates *Limiter
	shard int
	wake  func()
	// isHeld is the loop's own: what holds has noted last.
	isHeld bool
}

// take returns how many of so many messages of a topic may be claimed, of the whole queue
// where the topic is empty. If that is none, the shard is woken when there are some;
// inFlight is how many it has in flight.
func (q *Quota) take(topic string, messages, inFlight int) (n int) {
	n = messages
	q.rates.with(topic, func(l *limit) {
		now := q.rates.now()
		if n = l.take(q, messages, l.missed(q, now)); n == 0 {
			l.wait(q, inFlight, now)
		}
	})
	return n
}

// Await reports whether there are any. If there are none, the shard stands in line, and is woken, as by take.
func (q *Quota) Await(topic string, inFlight int) bool {
	may := true
	q.rates.with(topic, func(l *limit) {
		if may = l.offers[q].messages > 0 || l.free >= 1 && len(l.waiting) == 0; !may {
			l.wait(q, inFlight, q.rates.now())
		}
	})
	return may
}

// TakeOne takes one message of a topic that was claimed already. It waits for none.
func (q *Quota) TakeOne(topic string) (may bool) {
	may = true
	q.rates.with(topic, func(l *limit) { may = l.offers[q].messages == 0 && l.take(q, 1, 0) == 1 })
	return may
}

// give gives messages back.
func (q *Quota) give(topic string, messages int) {
	if messages != 0 {
		q.rates.with(topic, func(l *limit) { l.add(messages) })
	}
}

// Spend takes a message from its topic, in any case.
func (q *Quota) Spend(topic string) { q.give(topic, -1) }

// Refund gives a message back that is not handed to the sink. One that is held back may be
// claimed again at once, for the same end: what it has taken is free a moment later.
func (q *Quota) Refund(topic string, isHeldBack bool) {
	give := func(l *limit) { l.add(1) }
	if isHeldBack {
		give = func(l *limit) { l.giveLater(1) }
	}
	q.rates.with("", give)
	if topic != "" {
		q.rates.with(topic, give)
	}
}

// Holds notes whether the shard is ours: so large is our part of the rates, where the bucket
// does not answer.
func (q *Quota) Holds(isHeld bool) {
	if isHeld != q.isHeld {
		q.isHeld = isHeld
		q.rates.hold(q.shard, isHeld)
	}
}

// Leave gives back what is kept for the shard.
func (q *Quota) Leave() { q.rates.leave(q) }

// Allowance is what a claim without an answer may take by the rates.
type Allowance struct {
	Topic    string // whose rate it has been taken from, beside the queue's
	Messages int
	at       time.Duration // when it was taken
}

// Allow takes from the rates what a claim may take: from that of the queue, and for a slot of
// a topic from its own.
func (q *Quota) Allow(topic string, messages, inFlight int) Allowance {
	a := Allowance{topic, q.take("", messages, inFlight), q.rates.now()}
	if topic != "" && a.Messages > 0 {
		n := q.take(topic, a.Messages, inFlight)
		q.give("", a.Messages-n)
		a.Messages = n
	}
	return a
}

// Use gives an Allowance back but for what is published. The topics of messages are counted
// one by one. more: there is more that could be claimed.
func (q *Quota) Use(a Allowance, published int, more bool) {
	if a.Messages == 0 {
		return
	}
	isBehind := more && published == a.Messages
	q.use("", a, a.Messages-published, isBehind)
	if a.Topic != "" {
		q.use(a.Topic, a, a.Messages, isBehind)
	}
}

func (q *Quota) use(topic string, a Allowance, left int, isBehind bool) {
	q.rates.with(topic, func(l *limit) {
		l.add(left)
		l.note(q, a.at, isBehind)
	})
}
