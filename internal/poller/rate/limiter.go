// Package rate keeps the rates of a queue: how many messages a second all its instances
// together may publish, of the queue and of each topic.
//
// A [Limiter] is what an instance has of them. It takes from a [Bucket] that all instances
// share, a little at a time while there is traffic, and hands it to the [Quota] of each shard
// that asks for it:
//
//	bucket ──ask──► free ──take──► claimed ──► published
//	   ▲             │ ▲              │
//	   └── too much ─┘ └─ give, refund ┘  handed out to those that wait: kept, until it lapses
//
// So the rates are never exceeded, whichever shards have the traffic, and no shard
// waits for a call. Only the Limiter's one goroutine calls the bucket. What comes in while the
// bucket does not answer is paid to it afterwards, since it has saved up the same.
package rate

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// How the bucket is asked: the shortest interval, the timeout, and the pause before it is asked again if it has not
// answered. What a shard has waited for is kept for it so long: a call for its lease may be under way.
const (
	askEvery   = 100 * time.Millisecond
	askTimeout = 250 * time.Millisecond
	retryAfter = time.Second
	keptFor    = 5 * askEvery
)

// How much of a rate an instance has in hand, in seconds: for shards that wait, and of its
// part if none does. A claim is worth what comes in for its shard in so long.
const (
	inHand     = 0.2
	worthClaim = 0.1
)

// Bucket has what the rates of a queue allow all its instances together.
type Bucket interface {
	// TakeRates takes messages of rates, or gives them back, and returns how many of each it
	// has granted. An error means that it may have taken them or not.
	TakeRates(ctx context.Context, asked []message.RateRequest) (granted []int, err error)
}

// Limiter has the rates of a queue for all its shards in this process. Where the bucket does not
// answer, the process has the part of its shards. It is safe for concurrent use, and owns one
// goroutine, while there is something to ask for.
type Limiter struct {
	bucket Bucket // nil: the part of our shards
	now    func() time.Duration
	log    *slog.Logger
	sayNow func(trouble string) bool
	shards atomic.Int32 // how many the queue has
	isAny  atomic.Bool  // there are rates

	mu     sync.Mutex
	limits map[string]*limit // by topic; the empty one is the whole queue
	held   map[int]bool      // shards
	isEven bool              // the bucket does not answer
	// ctx, nil before the start, is of the calls. isAsking: the goroutine runs.
	ctx       context.Context
	stopCalls context.CancelFunc
	isAsking  bool
	asking    sync.WaitGroup
	// When the bucket was asked last, when it may be asked again after it has not answered,
	// and up to when we have had our part instead.
	askedAt, retryAt, accruedTo time.Duration
}

// New returns a limiter of a queue of so many shards. now is the time since some instant;
// sayNow reports whether a trouble is worth a line in the log again.
func New(limits Limits, bucket Bucket, shards int, now func() time.Duration, log *slog.Logger, sayNow func(string) bool) *Limiter {
	rs := &Limiter{
		bucket: bucket, isEven: bucket == nil, now: now, log: log, sayNow: sayNow,
		held: make(map[int]bool), askedAt: -askEvery,
	}
	rs.Spread(shards)
	rs.Follow(limits)
	return rs
}

// Quota is the way of a shard to the rates; wake is called when there may be more for it.
func (rs *Limiter) Quota(shard int, wake func()) *Quota {
	return &Quota{rates: rs, shard: shard, wake: wake}
}

// Spread says how many shards the queue has.
func (rs *Limiter) Spread(shards int) { rs.shards.Store(int32(max(1, shards))) } //nolint:gosec // at most some thousands

// Start lets the bucket be asked; ctx only carries values.
func (rs *Limiter) Start(ctx context.Context) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.ctx, rs.stopCalls = context.WithCancel(ctx)
}

// Stop ends the asking. What is in hand is lost.
func (rs *Limiter) Stop() {
	rs.mu.Lock()
	if rs.ctx != nil {
		rs.stopCalls()
	}
	rs.mu.Unlock()
	rs.asking.Wait()
}

// Follow takes other rates, with nothing in hand.
func (rs *Limiter) Follow(all Limits) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.limits, rs.accruedTo = make(map[string]*limit), rs.now()
	if all.Messages > 0 {
		rs.limits[""] = newLimit(all.Messages)
	}
	for topic, n := range all.Topics {
		rs.limits[topic] = newLimit(n)
	}
	rs.isAny.Store(len(rs.limits) > 0)
}

// with does something with the limit of a topic, if it has one, and what follows from it.
func (rs *Limiter) with(topic string, do func(*limit)) {
	if !rs.isAny.Load() {
		return
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if l := rs.limits[topic]; l != nil {
		do(l)
		rs.handOut(l)
		if l.isBusy() {
			rs.begin()
		}
	}
}

// handOut keeps what is free for the shards that wait.
func (rs *Limiter) handOut(l *limit) {
	if len(l.waiting) > 0 && l.free >= 1 {
		l.handOut(rs.incoming(), rs.now()+keptFor)
	}
}

func (rs *Limiter) hold(shard int, isHeld bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if isHeld {
		rs.held[shard] = true
	} else {
		delete(rs.held, shard)
	}
}

// leave forgets a shard.
func (rs *Limiter) leave(q *Quota) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	delete(rs.held, q.shard)
	for _, topic := range rs.topics() {
		rs.limits[topic].leave(q)
		rs.handOut(rs.limits[topic])
	}
}

// topics are those that have a limit, in an order that is always the same.
func (rs *Limiter) topics() []string { return slices.Sorted(maps.Keys(rs.limits)) }

// part is which part of the queue is ours.
func (rs *Limiter) part() float64 {
	return min(1, float64(len(rs.held))/float64(rs.shards.Load()))
}

// incoming is which part of the rates may come in: others may leave us all.
func (rs *Limiter) incoming() float64 {
	if rs.isEven {
		return rs.part()
	}
	return 1
}

// goal is how many messages to have in hand.
func (rs *Limiter) goal(l *limit) float64 {
	n := inHand * float64(l.perSecond)
	if len(l.waiting) == 0 {
		return max(1, n*rs.part())
	}
	return max(1, n, float64(l.worth(rs.incoming())))
}

// begin has the goroutine run; rs.mu is held.
func (rs *Limiter) begin() {
	if rs.isAsking || rs.ctx == nil || rs.ctx.Err() != nil {
		return
	}
	rs.isAsking = true
	rs.asking.Go(func() {
		more := true
		for more && wait.Sleep(rs.ctx, rs.pause()) {
			more = rs.ask()
		}
	})
}

// Step does for a simulation what the goroutine does, and returns when it is to do so again.
func (rs *Limiter) Step() time.Duration {
	if !rs.isAny.Load() {
		return time.Second
	}
	rs.ask()
	return askEvery
}

func (rs *Limiter) isBusy() bool {
	for _, l := range rs.limits {
		if l.isBusy() {
			return true
		}
	}
	return false
}

// pause is how long until the bucket may be asked. It varies, so that of instances that wait
// for the same, each has its turn.
func (rs *Limiter) pause() time.Duration {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	every := askEvery*4/5 + rand.N(askEvery*2/5)
	return max(0, rs.askedAt+every-rs.now())
}

// ask gets what is missing, from the bucket or of our part. It reports false if there
// is nothing to ask for any more.
func (rs *Limiter) ask() (more bool) {
	rs.mu.Lock()
	rs.isAsking = rs.isBusy()
	if !rs.isAsking {
		rs.mu.Unlock()
		return false
	}
	now := rs.now()
	rs.askedAt = now
	asked, limits := rs.missing(now)
	if rs.bucket == nil || now < rs.retryAt {
		rs.accrue(now)
		asked = nil
	}
	rs.mu.Unlock()
	if len(asked) > 0 {
		rs.granted(rs.call(asked), limits)
	}
	return true
}

// missing is what to ask the bucket for, or to give back to it.
func (rs *Limiter) missing(now time.Duration) (asked []message.RateRequest, of []*limit) {
	for _, topic := range rs.topics() {
		l := rs.limits[topic]
		l.lapse(now)
		rs.handOut(l)
		goal := rs.goal(l)
		if !rs.isEven {
			l.pay(l.free - goal)
		}
		n := int(math.Ceil(goal - l.free))
		isMissing := len(l.waiting) > 0 && n > 0 || l.isUsed && float64(n) > goal/2 || l.owed >= 1
		l.clearUse()
		switch {
		case n < 0 && !rs.isEven:
			l.giveBack(-n)
		case isMissing:
			n = max(0, n) + int(l.owed)
		default:
			continue
		}
		asked, of = append(asked, message.RateRequest{Topic: topic, Rate: l.perSecond, Messages: n}), append(of, l)
	}
	return asked, of
}

// accrue has our part come in since the last time, a second's worth at most.
func (rs *Limiter) accrue(now time.Duration) {
	seconds := min(1, (now - rs.accruedTo).Seconds())
	rs.accruedTo = now
	for _, topic := range rs.topics() {
		l := rs.limits[topic]
		each := float64(l.perSecond) * rs.part()
		l.accrue(each, seconds)
		rs.handOut(l)
	}
}

// call asks the bucket; nil is no answer.
func (rs *Limiter) call(asked []message.RateRequest) (granted []int) {
	defer func() {
		if cause := recover(); cause != nil {
			rs.log.Error("panic", "event", "rate", "err", fmt.Sprint(cause), "stack", string(debug.Stack()))
		}
	}()
	ctx, cancel := context.WithTimeout(rs.ctx, askTimeout)
	defer cancel()
	granted, err := rs.bucket.TakeRates(ctx, asked)
	if err == nil {
		return granted
	}
	if rs.ctx.Err() == nil && rs.sayNow("rates") {
		rs.log.Warn("rates are not shared with other instances, this one uses the part of its shards", "event", "rate", "err", err)
	}
	return nil
}

// granted takes the answer of the bucket, see call.
func (rs *Limiter) granted(granted []int, limits []*limit) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now := rs.now()
	if len(granted) < len(limits) {
		if !rs.isEven {
			rs.isEven, rs.accruedTo = true, now
		}
		rs.retryAt = now + retryAfter
		return
	}
	rs.isEven, rs.retryAt = false, 0
	for i, l := range limits {
		l.grant(max(0, granted[i])) // What is given back has left already.
		rs.handOut(l)
	}
}
