package store_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// oracle is what one shard should hold and answer: the scripts' rules written
// a second time, over plain maps. It knows no clock: a claim is expired or not,
// a message is due or in the far future.
type oracle struct {
	entries    map[string]*entry
	claims     map[string]*openClaim
	holder     *holding
	counters   map[string]int64
	generation int
	rows       rowsOracle
	routes     map[int]string // without the instant
}

// entry is a message; its generation stands for the token in force.
type entry struct {
	member     string
	where      store.Code // Waiting, InFlight, Dead
	due        int64      // as promised
	score      int64      // where it waits or waited before it was claimed
	retried    bool       // the score does not tell the promised due time
	generation int
	body       string
	attempts   message.Attempts
	reason     string
	token      string // of an outbox message
}

type openClaim struct {
	owner   string
	members []claimedEntry
	expired bool
}

type claimedEntry struct {
	member     string
	score      int64
	generation int
}

type holding struct {
	owner string
	last  uint64
}

func newOracle() *oracle {
	return &oracle{
		entries: map[string]*entry{}, claims: map[string]*openClaim{}, counters: map[string]int64{}, rows: newRowsOracle(),
		routes: map[int]string{},
	}
}

func (o *oracle) create(member, body string, due int64, attempts message.Attempts) {
	o.generation++
	o.entries[member] = &entry{
		member: member, where: store.Waiting, due: due, score: due, generation: o.generation, body: body, attempts: attempts,
	}
	o.counters["scheduled"]++
}

// carried is what outlives a replace or a redrive: the mark, and how often
// publishing may have begun.
func carried(a message.Attempts) message.Attempts {
	if a.MaybeOut == 0 {
		return message.Attempts{}
	}
	return message.Attempts{Begun: a.Begun, MaybeOut: a.MaybeOut}
}

func redriven(a message.Attempts) message.Attempts {
	if a.Begun == 0 {
		return message.Attempts{}
	}
	return message.Attempts{Begun: a.Begun, MaybeOut: a.MaybeOut}
}

func (o *oracle) schedule(member, body string, due int64, replace bool) store.Code {
	old := o.entries[member]
	switch {
	case old == nil:
		o.create(member, body, due, message.Attempts{})
		return store.Created
	case replace && old.where != store.InFlight:
		o.counters["replaced"]++
		o.rows.end(old, "c", false)
		o.create(member, body, due, carried(old.attempts))
		return store.Replaced
	default:
		return old.where
	}
}

// moveTo gives the message another due time.
func (e *entry) moveTo(due int64) { e.due, e.score, e.retried = due, due, false }

// history is what Redis has of its attempts, nothing where that is empty.
func (e *entry) history() string {
	switch {
	case e.retried:
		return message.NewHistory(e.attempts, time.UnixMilli(e.due)).String()
	case e.attempts != (message.Attempts{}):
		return e.attempts.String()
	default:
		return ""
	}
}

func done(e *entry) store.Code {
	if e.attempts.MaybeOut > 0 {
		return store.DoneMaybePublished
	}
	return store.Done
}

func (o *oracle) cancel(member string) store.Code {
	e := o.entries[member]
	switch {
	case e == nil:
		return store.NotFound
	case e.where == store.InFlight:
		return store.InFlight
	}
	delete(o.entries, member)
	o.rows.end(e, "c", false)
	o.counters["cancelled"]++
	return done(e)
}

func (o *oracle) reschedule(member string, due int64) store.Code {
	e := o.entries[member]
	switch {
	case e == nil:
		return store.NotFound
	case e.where == store.InFlight:
		return store.InFlight
	}
	code := done(e)
	if e.where == store.Dead {
		o.counters["redriven"]++
		e.where, e.attempts, e.reason = store.Waiting, redriven(e.attempts), ""
	}
	e.moveTo(due)
	if e.token == "" {
		o.generation++
		e.generation = o.generation
	} else {
		o.rows.ledger[e.token] = fmt.Sprintf("d%d:%s", due, member)
		if code == store.DoneMaybePublished {
			o.rows.ledger[e.token] = fmt.Sprintf("d+%d:%s", due, member)
		}
	}
	o.counters["rescheduled"]++
	return code
}

// waiting are the waiting messages in the order of a ZSET.
func (o *oracle) waiting() []*entry {
	var list []*entry
	for _, e := range o.entries {
		if e.where == store.Waiting {
			list = append(list, e)
		}
	}
	slices.SortFunc(list, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.score, b.score), strings.Compare(a.member, b.member))
	})
	return list
}

// claim is the answer's state, and the claim's messages where it is granted.
func (o *oracle) claim(r message.ClaimRequest, seizes bool, nowMs int64) (message.ClaimState, []claimedEntry, bool) {
	instance, token := r.Token.Instance, r.Token.String()
	last, dirty := uint64(0), false
	for _, c := range o.claims {
		dirty = dirty || c.owner != instance
	}
	switch {
	case o.holder == nil:
	case o.holder.owner == instance:
		last = o.holder.last
	case !seizes:
		return message.ClaimHeld, nil, false
	}
	again := o.claims[token]
	outdated := again == nil && r.Token.Number <= last
	if !dirty && !outdated {
		last = max(last, r.Token.Number)
	}
	o.holder = &holding{owner: instance, last: last}
	for _, live := range r.Live {
		if c := o.claims[live.String()]; c != nil {
			c.expired = r.Timeout == 0
		}
	}
	switch {
	case dirty:
		return message.ClaimReclaimFirst, nil, false
	case outdated:
		return message.ClaimOutdated, nil, false
	case again != nil:
		again.expired = r.Timeout == 0
		o.free(r.Free)
		return message.ClaimGranted, again.members, false
	}
	var taken []claimedEntry
	for _, e := range o.waiting() {
		slot, ms := message.SplitScore(e.score)
		if slot != r.Slot || ms > nowMs || len(taken) == r.Max {
			continue
		}
		e.where = store.InFlight
		taken = append(taken, claimedEntry{e.member, e.score, e.generation})
	}
	if len(taken) > 0 {
		o.claims[token] = &openClaim{owner: instance, members: taken, expired: r.Timeout == 0}
	}
	o.free(r.Free)
	return message.ClaimGranted, taken, len(taken) > 0 && len(taken) == r.Max
}

// free forgets slots that hold nothing.
func (o *oracle) free(slots []int) {
	for _, slot := range slots {
		if len(o.slot(slot)) == 0 {
			delete(o.routes, slot)
		}
	}
}

// slot are the messages that are parked in it.
func (o *oracle) slot(slot int) (list []*entry) {
	for _, e := range o.waiting() {
		if s, _ := message.SplitScore(e.score); s == slot {
			list = append(list, e)
		}
	}
	return list
}

// strays are the claims of the instance that the request does not name.
func (o *oracle) strays(r message.ClaimRequest) (tokens []string) {
	for token, c := range o.claims {
		named := func(t message.ClaimToken) bool { return t.String() == token }
		if c.owner == r.Token.Instance && !named(r.Token) && !slices.ContainsFunc(r.Live, named) {
			tokens = append(tokens, token)
		}
	}
	return tokens
}

// settle returns stale; a retry's new due time is told by dueOf.
func (o *oracle) settle(s message.Settlement, generations []int, dueOf func(member string) int64) bool {
	token := s.Claim.Token.String()
	claim, before, after := o.claims[token], []claimedEntry(nil), []claimedEntry(nil)
	for i, v := range s.Verdicts {
		m := claimedEntry{s.Claim.Messages[i].Member, s.Claim.Messages[i].Score, generations[i]}
		if before = append(before, m); v.Verb == message.VerbKeep {
			after = append(after, m)
		}
	}
	switch {
	case len(after) == len(before):
		return false
	case claim == nil, !slices.Equal(claim.members, before):
		if s.Repeated && len(after) > 0 && claim != nil && slices.Equal(claim.members, after) {
			return false
		}
		return o.settleStale(s, generations)
	}
	if claim.members = after; len(after) == 0 {
		delete(o.claims, token)
	}
	for i, v := range s.Verdicts {
		m := &s.Claim.Messages[i]
		e := o.entries[m.Member]
		if v.Verb != message.VerbAck && v.Attempts != (message.Attempts{}) {
			e.attempts = v.Attempts
		}
		switch v.Verb {
		case message.VerbKeep:
		case message.VerbAck:
			delete(o.entries, m.Member)
			o.rows.settled(e, "p")
			o.counters["published"]++
			if m.Attempts.MaybeOut > 0 {
				o.counters["suspected_duplicates"]++
			}
		case message.VerbDrop:
			delete(o.entries, m.Member)
			o.rows.settled(e, "c")
			o.counters["dropped"]++
		case message.VerbRetry:
			e.where, e.score, e.retried = store.Waiting, dueOf(m.Member), true
			o.counters["retried"]++
		case message.VerbRelease:
			e.where, e.score, e.retried = store.Waiting, e.due, false
			o.counters["released"]++
		case message.VerbPark:
			e.where, e.score, e.retried = store.Waiting, message.ParkedScore(v.Slot, time.UnixMilli(e.due)), false
			o.counters["parked"]++
		case message.VerbDeadLetter:
			e.where, e.reason, e.attempts = store.Dead, v.Reason, v.Attempts
			o.counters["dead_lettered"]++
		}
	}
	for _, p := range s.Parks {
		o.routes[p.Slot] = p.Route + "|" + p.Reason
	}
	return false
}

func (o *oracle) settleStale(s message.Settlement, generations []int) bool {
	var live []*entry
	for i, v := range s.Verdicts {
		e := o.entries[s.Claim.Messages[i].Member]
		handed := v.Verb == message.VerbAck || v.Published && v.Verb != message.VerbKeep
		if handed && e != nil && e.where != store.Dead && e.generation == generations[i] {
			live = append(live, e)
		}
	}
	if s.Repeated && len(live) == 0 {
		return false
	}
	for _, e := range live {
		e.attempts.MaybeOut++
	}
	o.counters["stale_settles"]++
	return true
}

// reclaimable are the claims that a reclaim may choose from, or nil where the
// instance does not hold the shard.
func (o *oracle) reclaimable(r message.Reclaim) []string {
	if o.holder == nil || o.holder.owner != r.Instance {
		return nil
	}
	var tokens []string
	for token, c := range o.claims {
		chosen := c.expired
		switch {
		case r.Stray != (message.ClaimToken{}):
			chosen = r.Stray.String() == token && r.Stray.Instance == r.Instance
		case r.Foreign:
			chosen = c.owner != r.Instance
		}
		if chosen {
			tokens = append(tokens, token)
		}
	}
	return tokens
}

// reclaim ends the claim that the script chose; "" where there was none.
func (o *oracle) reclaim(token string) {
	c := o.claims[token]
	if c == nil {
		return
	}
	delete(o.claims, token)
	for _, m := range c.members {
		e := o.entries[m.member]
		e.where = store.Waiting
		e.attempts.Begun++
		e.attempts.MaybeOut++
		o.counters["reclaimed"]++
	}
}

func (o *oracle) redrive(member string, dueMs int64) store.Code {
	if e := o.entries[member]; e == nil || e.where != store.Dead {
		return store.NotFound
	}
	o.reschedule(member, dueMs)
	o.counters["rescheduled"]-- // It counts as redriven alone.
	return store.Done
}

func (o *oracle) purge(member string) store.Code {
	e := o.entries[member]
	if e == nil || e.where != store.Dead {
		return store.NotFound
	}
	delete(o.entries, member)
	o.rows.end(e, "c", true)
	o.counters["purged"]++
	return store.Done
}
