package poller

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/delaybridge/delaybridge/internal/sinks"
)

// reasonRate is why messages of a topic are parked that come faster than its rate.
const reasonRate sinks.Reason = "rate"

// Rates say how many messages a second are published at the most, over all shards: of
// the queue, and of topics. 0 is no limit. Each shard has its even part.
type Rates struct {
	Messages int
	Topics   map[string]int
}

// claimsASecond is how many claims a second a limit is spread over, so that a slow
// rate does not cost a claim a message.
const claimsASecond = 10

// limit is a shard's part of a rate. It begins empty, so that a takeover is no burst,
// and saves up for a second at the most. nil is no limit. Only the shard's loop uses it.
type limit struct {
	bucket *rate.Limiter
	least  float64 // messages that a claim is made for
}

func newLimit(total, shards int) *limit {
	if total <= 0 {
		return nil
	}
	perSecond := float64(total) / float64(max(1, shards))
	l := &limit{least: min(max(1, perSecond/claimsASecond), maxBatch)}
	l.bucket = rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond)))
	l.bucket.AllowN(time.Now(), l.bucket.Burst())
	return l
}

// room is how many messages a claim may take.
func (l *limit) room() int {
	if l == nil {
		return maxBatch
	}
	if tokens := l.bucket.Tokens(); tokens >= l.least {
		return int(tokens)
	}
	return 0
}

// wait is how long until there is room.
func (l *limit) wait() time.Duration {
	if l == nil || l.room() > 0 {
		return 0
	}
	missing := (l.least - l.bucket.Tokens()) / float64(l.bucket.Limit())
	return time.Duration(missing*float64(time.Second)) + time.Millisecond
}

// spend takes messages that were claimed: as many as there was room for.
func (l *limit) spend(n int) {
	if l != nil {
		l.bucket.AllowN(time.Now(), n)
	}
}

// limits are a shard's parts of the rates. Only the shard's loop uses them.
type limits struct {
	// policy and shards, of the queue, are those by which the parts were made.
	policy *Policy
	shards int
	queue  *limit
	topics map[string]*limit
}

// share makes the parts anew where the policy is another one, or the queue has so many
// shards now, and reports whether it did.
func (l *limits) share(policy *Policy, shards int) (isNew bool) {
	if policy == l.policy && shards == l.shards {
		return false
	}
	rates := policy.Rates
	l.policy, l.shards = policy, shards
	l.queue, l.topics = newLimit(rates.Messages, shards), make(map[string]*limit, len(rates.Topics))
	for topic, n := range rates.Topics {
		l.topics[topic] = newLimit(n, shards)
	}
	return true
}

// throttle returns the route in whose slot a message has to wait that has come faster
// than the rate of its topic; nil where it may be published.
func (rs *routes) throttle(name sinks.Route, topic string, redisNow time.Time) *route {
	l := rs.limits.topics[topic]
	if l == nil || l.bucket.Allow() {
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
