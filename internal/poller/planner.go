package poller

import (
	"log/slog"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/poller/batch"
	"github.com/delaybridge/delaybridge/internal/poller/rate"
	"github.com/delaybridge/delaybridge/internal/poller/routes"
)

// How many batches of a shard may be under way. Those that wait for routes which may be
// dead have bounds of their own, so that they do not hold up the others: probes, and
// batches of which all that is left hangs. While maxProbing of these are under way no
// route is probed; what hangs is the probe of its route.
const (
	maxLive    = 64
	maxProbing = 256
	maxHanging = 1024
)

const (
	// maxReclaims is how many calls reclaim at a time, before the next claim
	// renews the lease.
	maxReclaims = 16
	// freeNumbers is how many outdated numbers in a row are replaced without a pause.
	freeNumbers = 8
	// askAgain is the pause if it is not known whether the rates allow a message.
	askAgain = time.Second
	// rampFactor is how fast claims grow after a panic of the sink.
	rampFactor = 4
)

// The waits between two calls.
const (
	// Of a store that does not answer. The limit is part of how long a shard stands still
	// after a failover, so it is short. It costs little: the store's client soon dials a dead
	// Redis once a second only.
	redisInitial = 50 * time.Millisecond
	redisLimit   = 500 * time.Millisecond
	// Of one that has no layout.
	layoutInitial = 100 * time.Millisecond
	layoutLimit   = 5 * time.Second
	// Of one that does not confirm claims.
	unconfirmedInitial = 100 * time.Millisecond
	unconfirmedLimit   = 2 * time.Second
	// For another instance's lease. It may be given up any moment, and
	// the hint that says so may be lost; a shard is not held by another for long
	// while it is ours to poll.
	leastHeld   = 10 * time.Millisecond
	heldInitial = 25 * time.Millisecond
	heldLimit   = 500 * time.Millisecond
)

// action is what a shard is to call.
type action uint8

const (
	actionNone   action = iota
	actionClaim         // the pending request
	actionParked        // what is parked
)

// planner decides when a shard calls the store, and for what, one call at a time: a claim of
// nothing to keep the lease, of what is due, or of a slot.
//
//	          ┌──────── not answered: the same request, after a pause ◄─┐
//	          ▼                                                         │
//	next ──► pending: a number, room in the window, a part of the rates ┴─► granted: advance
//	  ▲                  │ another holds the shard, outdated, no layout ──► given up: advance
//	  │                  └─ earlier holders have left claims: reclaim, then the same request
//	  └── due, a slot, a hint, or a renewal of the lease
//
// Only the timed look is reliable, since a hint may be lost. A request for a claim stays pending,
// with its token, until it is answered: so no batch is taken and forgotten. All instants that
// the shard waits for are here, on its own clock.
type planner struct {
	queue  *Queue
	log    *slog.Logger
	flight *batch.Flight
	routes *routes.Table
	quota  *rate.Quota
	turn   *turn

	isDraining bool // claim no more
	isOver     bool // the store is not called any more
	isPaused   bool // the whole queue is

	// takeAt is when the head of what is due and not parked can be taken, probeAt
	// when the next slot of parked messages can.
	takeAt, probeAt time.Duration
	// isBlocked: what is due waits for messages that are on their way into a slot.
	isBlocked bool
	// renewAt is when to claim in any case, even nothing.
	renewAt time.Duration
	// Until quietUntil nothing is called. Until the others nothing is taken: the sink is down,
	// claims are not confirmed, or the queue's rate is used up.
	quietUntil, pausedUntil, unconfirmedUntil, limitedUntil time.Duration

	takes    bool          // messages can be claimed, if there are any
	load     batch.Load    // what is in flight
	slot     *routes.Probe // the slot that can be claimed from now
	slotNext bool          // whose turn it is, where both what is due and a slot could be claimed
	rampSize int           // how many messages to take after a panic of the sink; 0 is no limit

	isUnderWay bool // a call has no answer yet, and none is made before it has
	number     uint64
	// lastGranted is the number of the last claim that was granted.
	lastGranted uint64
	pending     *message.ClaimRequest
	first       time.Duration  // when pending was first sent
	began       time.Duration  // when it was sent last
	probe       *routes.Probe  // the slot that pending claims from; nil: what is due
	allowed     rate.Allowance // what pending may take by the rates
	outdated    int
	reclaimRun  reclaimRun
	// unloaded: what is parked in the shard has to be read from Redis first.
	// isLoaded: it was read since the shard is ours.
	unloaded, isLoaded bool

	lease *batch.Lease
	// mine: the last claim was granted. byOther: the last one found another holder,
	// at refusedAt. foreignClaims: an earlier holder has left claims behind.
	mine, byOther, foreignClaims bool
	refusedAt                    time.Duration
	// othersUntil is when the lease of another ends at the earliest, as its last
	// answer said; zero if it named none.
	othersUntil time.Duration
	// holder is what names the other's lease, and since when it has not changed.
	holder string
	since  time.Duration

	redisOffset int64 // Redis' clock, in Unix nanoseconds, minus ours
	isSilent    bool  // Redis does not answer

	redisPause, layoutPause, unconfirmedPause, heldPause, reclaimPause wait.Backoff
}

// reclaiming is what is being reclaimed, a call after the other. It is a record.
type reclaimRun struct {
	which     message.Reclaim
	strays    []message.ClaimToken // after that
	calls     int
	reclaimed int
}

func newPlanner(q *Queue, log *slog.Logger, number uint64, f *batch.Flight, rs *routes.Table, quota *rate.Quota, t *turn) *planner {
	return &planner{
		queue: q, log: log, flight: f, routes: rs, quota: quota, turn: t, number: number, unloaded: true, lease: &batch.Lease{},
		redisPause:       q.backoff(redisInitial, redisLimit),
		layoutPause:      q.backoff(layoutInitial, layoutLimit),
		unconfirmedPause: q.backoff(unconfirmedInitial, unconfirmedLimit),
		heldPause:        q.backoff(heldInitial, heldLimit),
		reclaimPause:     q.backoff(leastHeld, time.Second),
	}
}

// next is what to call now, and else when to ask again. Of a shard that is ours:
//
//	Redis is left alone | a request has no answer | draining | what is parked is known | something can be taken | the lease is to be renewed → call
//	yes                 | *                       | *        | *                       | *                      | *                          → nothing
//	no                  | yes                     | *        | *                       | *                      | *                          → the same claim again
//	no                  | no                      | yes      | *                       | *                      | yes                        → a claim of nothing
//	no                  | no                      | yes      | *                       | *                      | no                         → nothing
//	no                  | no                      | no       | no                      | *                      | *                          → what is parked
//	no                  | no                      | no       | yes                     | yes                    | *                          → a claim
//	no                  | no                      | no       | yes                     | no                     | yes                        → a claim of nothing
//	no                  | no                      | no       | yes                     | no                     | no                         → nothing
func (a *planner) next(now time.Duration) (do action, at time.Duration) {
	if a.pending == nil {
		a.takeAt = min(a.takeAt, a.flight.Claimable())
	}
	switch at = a.callAt(now); {
	case at > now:
		return actionNone, at
	case a.unloaded && a.mine && a.pending == nil && !a.isDraining:
		a.isUnderWay = true
		a.routes.Ask()
		return actionParked, 0
	case a.pending == nil && !a.request(now):
		return actionNone, a.callAt(now)
	}
	a.isUnderWay, a.began = true, now
	return actionClaim, 0
}

// callAt is when to make the next call.
func (a *planner) callAt(now time.Duration) time.Duration {
	a.look(now)
	at := a.renewAt
	switch {
	case a.pending != nil:
		at = a.quietUntil
	case a.takes && a.isBlocked:
		at = min(at, max(a.probeAt, a.closedUntil()))
	case a.takes:
		at = min(at, max(min(a.probeAt, a.takeAt), a.closedUntil()))
	}
	at = max(at, a.quietUntil)
	if heard := a.refusedAt + leastHeld; a.byOther && heard > now {
		at = min(at, heard) // From then on hints are heard.
	}
	return at
}

// closedUntil is the instant until which nothing is taken.
func (a *planner) closedUntil() time.Duration {
	return max(a.pausedUntil, a.unconfirmedUntil, a.limitedUntil)
}

// look finds whether messages may be claimed now, if there are any, and from which slot.
func (a *planner) look(now time.Duration) {
	a.slot, a.takes, a.load = nil, false, a.flight.Load()
	switch {
	case a.isDraining || a.isPaused || !a.mine || a.turn.isCrowded || a.room() == 0:
		return
	case a.unloaded:
		a.probeAt = 0
	case a.flight.KeepsSlots() && now >= a.takeAt:
		a.probeAt, a.isBlocked = wait.Never, false
	default:
		a.slot, a.probeAt, a.isBlocked = a.routes.Next(now, a.queue.config.Claims.Batch, a.load.Batches-a.load.Working < maxProbing)
	}
	a.takes = true
}

// room is how many messages the next claim may take.
func (a *planner) room() int {
	claims, l := &a.queue.config.Claims, &a.load
	most := min(claims.Batch, claims.Batch*claims.InFlight-l.Messages)
	switch {
	case a.flight.IsReturning(): // The parts of a Key could hold each other up for ever.
		return 0
	case a.unconfirmedPause.Failures() > 0: // One message finds out whether claims are confirmed again.
		return max(0, 1-l.Batches)
	case l.Confirming >= claims.InFlight || l.Working >= maxLive || l.Batches-l.Working >= maxHanging: // Each confirmation holds a connection.
		return 0
	case a.rampSize > 0 && l.Batches > 0: // A message that makes the sink panic is soon alone, and punished alone.
		return 0
	case a.rampSize > 0:
		return min(most, a.rampSize)
	}
	return most
}

// isFull reports whether as much is in flight as may be, and more than the sink's window takes.
func (a *planner) isFull() bool {
	claims := &a.queue.config.Claims
	most, _ := a.queue.config.Sink.Window.Limit()
	return a.load.Messages >= max(most, claims.Batch*claims.InFlight)
}

// request makes the next request pending. It returns false if there is nothing to
// ask for: the sink has no room, and the lease need not be renewed yet.
func (a *planner) request(now time.Duration) bool {
	claims := &a.queue.config.Claims
	request := message.ClaimRequest{
		Token:   message.ClaimToken{Instance: a.queue.config.Instance, Number: a.number},
		Timeout: claims.Timeout,
		Lease:   claims.Lease,
		Free:    a.routes.TakeFree(),
	}
	if a.byOther && now-a.since > claims.Lease+claims.Lease/2 { // It was not renewed, by our own clock: Redis' clock may have been set back.
		request.Seize = a.holder
	}
	a.reserve(&request, now)
	isRefused := a.turn.isCrowded || now < a.closedUntil()
	if request.Max == 0 && isRefused && a.mine && !a.isDraining && now < a.renewAt && len(request.Free) == 0 {
		return false
	}
	request.Live = a.flight.Tokens()
	request.Quiet = request.Max == 0 && a.mine
	a.pending, a.first = &request, now
	a.flight.BeginClaim()
	return true
}

// reserve chooses what to take, what is due or a slot in turn, and gets room for
// it in the sink's window. If there is none, the claim takes nothing.
func (a *planner) reserve(request *message.ClaimRequest, now time.Duration) {
	if !a.isDraining && (now < a.closedUntil() || a.turn.isCrowded) { // Its turn in the window comes.
		return
	}
	allowed, from := a.pick(now)
	if allowed.Messages == 0 {
		a.turn.share.Yield()
		return
	}
	messages, bytes, retryAt := a.turn.reserve(allowed.Messages, now)
	if !retryAt.IsZero() {
		a.pausedUntil = now + retryAt.Sub(a.queue.base.Add(now))
	}
	if messages == 0 {
		a.quota.Use(allowed, 0, false)
		return
	}
	a.allowed, a.probe = allowed, from
	request.Max, request.MaxBytes = messages, bytes
	if from != nil {
		request.Slot = from.Route.Slot()
	}
}

// pick chooses what the next claim takes, and how much of it: what is due, or a slot; in
// turn if both could be taken.
//
//	it may take | what is parked is known | something is due | that waits for parking | a slot is ready | its turn | its route is known → takes
//	no          | *                       | *                | *                      | *               | *        | *                  → nothing
//	yes         | no                      | *                | *                      | *               | *        | *                  → nothing
//	yes         | yes                     | *                | *                      | yes             | *        | no                 → the slot
//	yes         | yes                     | yes              | no                     | yes             | no       | yes                → what is due
//	yes         | yes                     | *                | *                      | yes             | *        | yes                → the slot
//	yes         | yes                     | yes              | no                     | no              | *        | *                  → what is due
//	yes         | yes                     | *                | *                      | no              | *        | *                  → nothing
func (a *planner) pick(now time.Duration) (allowed rate.Allowance, from *routes.Probe) {
	if !a.takes || a.unloaded {
		return allowed, nil
	}
	isDue := now >= a.takeAt && !a.isBlocked
	switch {
	case a.slot != nil && (!isDue || a.slotNext || a.slot.IsNameless):
		from = a.slot
		allowed = a.quota.Allow(from.Limited, min(a.room(), from.Size), a.load.Messages)
	case isDue:
		allowed = a.quota.Allow("", a.room(), a.load.Messages)
	default:
		return allowed, nil
	}
	if allowed.Messages == 0 {
		if !a.quota.Await("", a.load.Messages) { // It is woken.
			a.limitedUntil = now + askAgain
		}
		return allowed, nil
	}
	a.slotNext = from == nil
	return allowed, from
}

// advance gives up the pending request, its number and its room in the window.
func (a *planner) advance() {
	a.turn.use(a.flight.Load())
	a.quota.Use(a.allowed, 0, false)
	a.dropRequest()
	a.flight.EndClaim()
}

// dropRequest ends the pending request.
func (a *planner) dropRequest() {
	a.pending, a.probe, a.allowed = nil, nil, rate.Allowance{}
	a.number++
}

// BackOff makes no call for a while.
func (a *planner) BackOff(now time.Duration) (until time.Duration) {
	a.quietUntil = now + a.redisPause.Next()
	return a.quietUntil
}

// noAnswer handles a claim without an answer. In a drain, the next holder reclaims what it may
// have taken.
func (a *planner) noAnswer(now time.Duration) {
	a.BackOff(now)
	if a.isDraining {
		a.advance()
	}
}

// clearTroubles handles that a claim was answered, which ends some troubles.
func (a *planner) clearTroubles(state message.ClaimState) {
	a.renewAt = a.queue.nextCommon(a.began, a.queue.config.Claims.renewEvery())
	a.redisPause.Reset()
	if state != message.ClaimOutdated {
		a.outdated = 0
	}
	if state != message.ClaimNoLayout {
		a.layoutPause.Reset()
	}
}

// grant is a request that was granted. It is a record.
type grant struct {
	request message.ClaimRequest
	probe   *routes.Probe
	allowed rate.Allowance
	// began is when it was sent, deadline when none of it may be published any more.
	began, deadline time.Duration
	// isNew: the shard was not ours before. hasLapsed: its last holder had fallen silent.
	isNew, hasLapsed bool
	// isUnsure: Redis has not what we have left there, so earlier messages of the same Keys may wait where we do not look
	// yet, in slots or in claims that nobody works on.
	isUnsure bool
}

// granted takes the answer of a claim that held the lease, which was received then.
func (a *planner) granted(claim *message.Claim, received time.Duration) (g grant) {
	claims := &a.queue.config.Claims
	g = grant{request: *a.pending, probe: a.probe, allowed: a.allowed, began: a.began, deadline: a.first + claims.Timeout}
	a.dropRequest()
	a.byOther = false
	a.heldPause.Reset()
	if g.isNew = !a.mine; g.isNew {
		g.hasLapsed = a.foreignClaims
		if a.othersUntil > 0 {
			g.hasLapsed = received >= a.othersUntil
		}
		a.mine, a.foreignClaims, a.othersUntil = true, false, 0
		a.unloaded, a.isLoaded = true, false
	} else if claim.Last != a.lastGranted {
		// A failover has taken back what was claimed since: also from slots. Or an answer was lost, perhaps of this
		// very claim, and another instance has held the shard before it without our knowing.
		a.unloaded, g.isUnsure = true, true
	}
	g.isUnsure = g.isUnsure || len(claim.Strays) > 0
	a.lastGranted = g.request.Token.Number
	a.redisOffset = claim.Now.UnixNano() - int64(received)
	a.lease = a.lease.Renew(g.began, claims.Lease)
	if head := received + untilHead(claim); g.probe == nil {
		a.takeAt = head
		if g.request.Max > 0 && len(claim.Messages) == 0 && head <= received {
			a.takeAt = received + time.Millisecond // Due, but nothing was taken.
		}
	} else {
		a.takeAt = min(a.takeAt, head)
	}
	return g
}

// untilHead is how long after the answer the first waiting message is due, as
// far as the store knows. The estimate of Redis' clock that it implies (the
// answer's time and what passed since it was received) is never ahead of that clock.
func untilHead(claim *message.Claim) time.Duration {
	if claim.NextDue.IsZero() {
		return wait.Never
	}
	return min(wait.Never, max(0, claim.NextDue.Sub(claim.Now)))
}

// redisClock is what Redis' clock said at that instant of ours: never ahead of it but
// by its own drift.
func (a *planner) redisClock(at time.Duration) time.Time {
	return time.Unix(0, a.redisOffset+int64(at))
}

// refused takes an answer of a claim that says that nothing can be claimed.
func (a *planner) refused(now time.Duration, claim *message.Claim, received time.Duration) {
	a.advance()
	a.renewAt = 0
	switch claim.State {
	case message.ClaimHeld:
		a.takeAt, a.quietUntil = 0, received+a.heldByOther(claim, received)
	case message.ClaimOutdated: // Ours may be far behind: numbers are left out, in growing steps.
		a.takeAt, a.unloaded = 0, true // Or an answer was lost, perhaps of the first claim after a failover.
		a.number += 1<<min(a.outdated, 20) - 1
		if a.outdated++; a.outdated > freeNumbers {
			a.BackOff(now)
		}
	case message.ClaimNoLayout:
		a.noLayout(now)
	case message.ClaimGranted, message.ClaimReclaimFirst:
	default:
		a.log.Error("claim answered with an unknown state", "event", "claim", "state", int(claim.State))
		a.BackOff(now)
	}
}

// heldByOther records that another instance holds the shard, and returns how long to
// wait before the next claim.
func (a *planner) heldByOther(claim *message.Claim, received time.Duration) time.Duration {
	if !a.byOther || claim.Holder != a.holder {
		a.holder, a.since = claim.Holder, received
	}
	a.lease.End()
	a.byOther, a.mine = true, false
	a.refusedAt, a.othersUntil = received, a.began+claim.HeldFor
	return max(leastHeld, min(claim.HeldFor, a.heldPause.Next()))
}

// noLayout waits until the layout is made, perhaps by us, or the shard is taken away because
// it was dropped. OnNoLayout finds out which.
func (a *planner) noLayout(now time.Duration) {
	if a.queue.config.Hooks.OnNoLayout != nil {
		a.isUnderWay = !a.isDraining // It is asked.
	} else if a.layoutPause.Failures() == 0 {
		a.log.Warn("the layout is missing in redis", "event", "claim")
	}
	a.quietUntil = now + a.layoutPause.Next()
}

// endCall handles the end of the call that was under way, answered or not.
func (a *planner) endCall() { a.isUnderWay = false }

// noteReply records whether Redis answers, and logs the change; not after the shard's end.
func (a *planner) noteReply(event string, err error) {
	switch {
	case err == nil && a.isSilent:
		a.isSilent = false
		if a.queue.redisBack() {
			a.log.Info("redis back", "event", "claim")
		}
	case err != nil && !a.isSilent && !a.isOver:
		a.isSilent = true
		if a.queue.redisSilent() {
			a.log.Warn("redis unavailable", "event", event, "err", err)
		}
	}
}

// markLoaded records that what is parked is known, and reports whether this is the first time
// since the shard became ours.
func (a *planner) markLoaded() (isNew bool) {
	isNew = !a.isLoaded
	a.unloaded, a.isLoaded = false, true
	return isNew
}

// reclaimForeign begins to return the claims of earlier holders. The claim that was refused for their sake is then
// asked for again, unless it takes something: a failover has taken the shard from us, and what is parked in it is not known.
func (a *planner) reclaimForeign() (which message.Reclaim, begins bool) {
	a.mine, a.foreignClaims = false, true
	if a.isDraining || a.pending.Max > 0 {
		a.advance()
	}
	if a.isDraining {
		return which, false
	}
	a.takeAt, a.renewAt = 0, 0
	return a.reclaim(reclaimRun{which: message.Reclaim{Instance: a.queue.config.Instance, Foreign: true}}), true
}

// reclaimStrays begins to return claims of ours that no batch of ours is: a failover has
// taken back that they were settled, or a settle had no answer for too long.
func (a *planner) reclaimStrays(strays []message.ClaimToken) (which message.Reclaim, begins bool) {
	if len(strays) == 0 {
		return which, false
	}
	return a.reclaim(reclaimRun{which: message.Reclaim{Instance: a.queue.config.Instance, Stray: strays[0]}, strays: strays[1:]}), true
}

func (a *planner) reclaim(r reclaimRun) message.Reclaim {
	a.reclaimRun, a.isUnderWay = r, true
	return r.which
}

// reclaimed takes the answer to a call that reclaims. The next one follows until nothing
// is left, or as often as one look allows.
func (a *planner) reclaimed(now time.Duration, messages int, more bool, err error) (which message.Reclaim, goesOn bool) {
	r := a.reclaimRun
	r.reclaimed += messages
	r.calls++
	if err == nil && more && r.calls < maxReclaims {
		return a.reclaim(r), true
	}
	if r.reclaimed > 0 {
		a.queue.config.Observer.Reclaimed(a.queue.config.Queue, r.reclaimed)
		a.takeAt = 0
		a.unloaded = true // What was parked is parked again.
		a.flight.Returned(a.redisClock(now))
	}
	switch {
	case r.which.Foreign:
		a.reclaimedForeign(now, r.reclaimed, err)
		return which, false
	case err != nil:
		a.BackOff(now)
		return which, false
	}
	a.flight.Lose(r.which.Stray)
	if r.reclaimed > 0 {
		a.log.Warn("reclaimed a claim that had been settled or given up",
			"event", "reclaim", "claim", r.which.Stray.String(), "messages", r.reclaimed)
	}
	return a.reclaimStrays(r.strays)
}

func (a *planner) reclaimedForeign(now time.Duration, messages int, err error) {
	a.first = now // Nothing was taken so far.
	a.queue.reclaim(messages)
	if err != nil || messages == 0 { // Nothing to reclaim, and yet the claim was refused: do not spin.
		a.quietUntil = now + a.reclaimPause.Next()
		return
	}
	a.reclaimPause.Reset()
}

// confirmed notes whether a claim is as durable as the queue asks. If it is not, the shard
// takes nothing for a while, and then one message, until a claim is confirmed.
func (a *planner) confirmed(now time.Duration, isDurable bool) {
	switch {
	case isDurable:
		a.unconfirmedPause.Reset()
	case now >= a.unconfirmedUntil:
		a.unconfirmedUntil = now + a.unconfirmedPause.Next()
	}
}

// settled says that a settle was answered: something has left the window, and perhaps gone to a slot that is not known.
func (a *planner) settled() {
	a.roomFreed()
	a.keepUp()
}

// keepUp has what is parked loaded again if there may be more than is known.
func (a *planner) keepUp() {
	a.unloaded = a.unloaded || a.routes.IsBehind()
}

// roomFreed says that something has left the window, so there may be room.
func (a *planner) roomFreed() {
	a.pausedUntil, a.limitedUntil = 0, 0
}

// learn draws the conclusions from a batch that has ended.
func (a *planner) learn(b *batch.Batch) {
	switch {
	case b.HasPanicked():
		a.rampSize = 1
	case a.rampSize > 0 && b.HasAnswered():
		a.rampSize = max(a.rampSize, len(b.Messages)) * rampFactor
		if a.rampSize >= a.queue.config.Claims.Batch {
			a.rampSize = 0
		}
	}
}

// Hears reports whether a hint is of use now. Else it is kept until it is.
func (a *planner) Hears(now time.Duration) bool {
	switch {
	case a.isUnderWay || a.pending != nil:
		return false
	case a.byOther: // The holder may have given it up. A busy producer's hints say the same.
		return now >= a.refusedAt+leastHeld
	default:
		return a.takes && now >= a.quietUntil && now >= a.closedUntil()
	}
}

// Hinted says that the head may have moved earlier, or that the shard's holder gave it up.
func (a *planner) Hinted() {
	a.takeAt = 0
	if a.byOther {
		a.quietUntil, a.renewAt = 0, 0
	}
}

// Woken says that there may be room in the window, or that the sink is back.
func (a *planner) Woken(now time.Duration) {
	a.turn.woken(now)
	a.pausedUntil = 0
}

// Allowed says that the rates may allow more.
func (a *planner) Allowed() { a.limitedUntil = 0 }

// pause says whether the whole queue is paused.
func (a *planner) pause(isPaused bool) { a.isPaused = isPaused }

// Drain says that nothing is to be claimed any more.
func (a *planner) Drain() {
	if !a.isDraining {
		a.isDraining, a.quietUntil = true, 0
	}
}

// end says that the store is not called any more.
func (a *planner) end() { a.isOver = true }

// Number is that of the next claim.
func (a *planner) Number() uint64 { return a.number }

// IsWaiting reports whether a call has no answer yet.
func (a *planner) IsWaiting() bool { return a.isUnderWay }

// IsDraining reports whether nothing is to be claimed any more.
func (a *planner) IsDraining() bool { return a.isDraining }

// IsOver reports whether the store is not called any more.
func (a *planner) IsOver() bool { return a.isOver }

// isDone reports whether nothing is to come any more.
func (a *planner) isDone() bool {
	return !a.isUnderWay && (a.isOver || a.isDraining && a.pending == nil)
}

// isMine reports whether the shard is, and the lease has not lapsed.
func (a *planner) isMine(now time.Duration) bool { return a.mine && a.lease.Lasts(now) }

// Leave gives back what it holds, when all has ended.
func (a *planner) Leave() {
	if a.pending != nil {
		a.advance()
	}
	a.turn.share.Leave()
	a.quota.Leave()
	if a.isSilent {
		a.isSilent = false
		a.queue.redisBack()
	}
}
