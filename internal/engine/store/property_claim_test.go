package store_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/storetest"
)

func drawShard(t *rapid.T) int { return rapid.IntRange(0, machineShards-1).Draw(t, "shard") }

// claim asks under a new number.
func (m *machine) claim(t *rapid.T) {
	shard := drawShard(t)
	instance := rapid.SampledFrom(instances).Draw(t, "instance")
	counter := fmt.Sprint(instance, shard)
	m.numbers[counter]++
	r := message.ClaimRequest{
		Token: message.ClaimToken{Instance: instance, Number: m.numbers[counter]},
		Max:   rapid.IntRange(0, 4).Draw(t, "max"), Timeout: drawTimeout(t), Lease: lease,
		Slot: rapid.SampledFrom(drawnSlots).Draw(t, "take from"),
	}
	if rapid.Bool().Draw(t, "free") {
		r.Free = []int{1, 2, message.MaxSlot}
	}
	if holder, err := m.rdb.Get(t.Context(), storetest.Key(m.q.Name(), shard, "holder")).Result(); err == nil {
		r.Seize = rapid.SampledFrom([]string{"", holder, "a|1|0"}).Draw(t, "seize")
	}
	for _, h := range m.held[shard] {
		if h.request.Token.Instance == instance && rapid.Bool().Draw(t, "live") {
			r.Live = append(r.Live, h.request.Token)
		}
	}
	m.ask(t, shard, r)
}

// claimAgain asks under a number that was used before. That of an ended claim
// is only remembered while its instance holds the shard.
func (m *machine) claimAgain(t *rapid.T) {
	shard := drawShard(t)
	o := m.oracles[shard]
	var known []heldClaim
	for _, h := range m.held[shard] {
		token := h.request.Token
		remembered := o.holder != nil && o.holder.owner == token.Instance && o.holder.last >= token.Number
		if o.claims[token.String()] != nil || remembered {
			known = append(known, h)
		}
	}
	if len(known) == 0 {
		t.Skip("no claim is known")
	}
	r := rapid.SampledFrom(known).Draw(t, "claim").request
	r.Timeout, r.Live = drawTimeout(t), nil
	m.ask(t, shard, r)
}

var drawnSlots = []int{0, 0, 0, 1, 2, message.MaxSlot}

// drawTimeout makes a claim that has expired at once, or never does.
func drawTimeout(t *rapid.T) time.Duration {
	if rapid.Bool().Draw(t, "expired") {
		return 0
	}
	return never
}

func (m *machine) ask(t *rapid.T, shard int, r message.ClaimRequest) {
	o := m.oracles[shard]
	holder := m.rdb.Get(t.Context(), storetest.Key(m.q.Name(), shard, "holder")).Val()
	claim, err := m.q.Shard(shard).Claim(t.Context(), r)
	require.NoError(t, err)
	state, want, more := o.claim(r, holder == r.Seize, m.now(t))
	require.Equal(t, state, claim.State)
	if state == message.ClaimHeld {
		require.Equal(t, holder, claim.Holder)
		require.Positive(t, claim.HeldFor)
		require.LessOrEqual(t, claim.HeldFor, lease)
	}
	if state != message.ClaimGranted {
		require.Empty(t, claim.Messages)
		return
	}
	require.Equal(t, more, claim.More, "more")
	nextDue := int64(-1)
	if waiting := o.slot(0); len(waiting) > 0 {
		nextDue = waiting[0].score
	}
	var strays []string
	for _, token := range claim.Strays {
		strays = append(strays, token.String())
	}
	require.ElementsMatch(t, o.strays(r), strays)
	require.Equal(t, nextDue < 0, claim.NextDue.IsZero(), "next due")
	if nextDue >= 0 {
		require.Equal(t, nextDue, claim.NextDue.UnixMilli())
	}
	require.Len(t, claim.Messages, len(want))
	h := heldClaim{request: r, claim: claim, generations: make([]int, len(want))}
	for i, c := range claim.Messages {
		m.checkClaimed(t, shard, c, want[i])
		h.generations[i] = want[i].generation
	}
	if len(want) > 0 {
		m.held[shard] = append(m.held[shard], h)
	}
}

func (m *machine) checkClaimed(t *rapid.T, shard int, c message.ClaimedMessage, want claimedEntry) {
	e := m.oracles[shard].entries[want.member]
	require.NoError(t, c.Err)
	require.Equal(t, want.member, c.Member)
	require.Equal(t, want.score, c.Score)
	require.Equal(t, e.due, c.DueAt.UnixMilli())
	require.Equal(t, e.body, string(c.Body))
	require.Equal(t, e.attempts, c.Attempts)
	require.Equal(t, e.attempts.Begun+1, c.Attempt)
	require.Equal(t, m.q.Name(), c.Queue)
	// The token stays as long as the generation does, and is nobody else's.
	name := fmt.Sprint(shard, "/", want.generation)
	if m.tokens[name] == "" {
		require.NotContains(t, slices.Collect(maps.Values(m.tokens)), c.Token)
		m.tokens[name] = c.Token
	}
	require.Equal(t, m.tokens[name], c.Token)
}

func (m *machine) settle(t *rapid.T) {
	shard := drawShard(t)
	var live []heldClaim
	for _, h := range m.held[shard] {
		if m.oracles[shard].claims[h.request.Token.String()] != nil {
			live = append(live, h)
		}
	}
	m.settleOne(t, shard, live)
}

// settleOld settles claims that may have ended long ago.
func (m *machine) settleOld(t *rapid.T) {
	shard := drawShard(t)
	m.settleOne(t, shard, m.held[shard])
}

func (m *machine) settleOne(t *rapid.T, shard int, from []heldClaim) {
	if len(from) == 0 {
		t.Skip("no claim is known")
	}
	h := rapid.SampledFrom(from).Draw(t, "claim")
	s := message.Settlement{Claim: h.claim, Repeated: rapid.Bool().Draw(t, "repeated")}
	rest := heldClaim{request: h.request, claim: h.claim}
	rest.claim.Messages = nil
	for i := range h.claim.Messages {
		v := drawVerdict(t, h.claim.Messages[i].Attempts)
		switch s.Verdicts = append(s.Verdicts, v); v.Verb {
		case message.VerbPark:
			s.Parks = append(s.Parks, message.ParkedRoute{
				Slot: v.Slot, Route: rapid.SampledFrom([]string{"", "r", "a 1:b"}).Draw(t, "route"), Reason: v.Reason,
			})
		case message.VerbKeep:
			rest.claim.Messages = append(rest.claim.Messages, h.claim.Messages[i])
			rest.generations = append(rest.generations, h.generations[i])
		default:
		}
	}
	if len(rest.generations) > 0 {
		m.held[shard] = append(m.held[shard], rest)
	}
	before := m.now(t)
	stale, err := m.q.Shard(shard).Settle(t.Context(), s)
	require.NoError(t, err)
	after := m.now(t)
	due := func(member string) int64 {
		score, err := m.rdb.ZScore(t.Context(), storetest.Key(m.q.Name(), shard, "due"), member).Result()
		require.NoError(t, err)
		i := slices.IndexFunc(h.claim.Messages, func(c message.ClaimedMessage) bool { return c.Member == member })
		delay := s.Verdicts[i].Delay.Milliseconds()
		require.True(t, before+delay <= int64(score) && int64(score) <= after+1+delay, "due time of a retry")
		return int64(score)
	}
	require.Equal(t, m.oracles[shard].settle(s, h.generations, due), stale, "stale")
	// A retry without delay is due within a millisecond; the oracle has no clock.
	for m.now(t) <= after {
		continue
	}
}

// drawVerdict does with the counts what the poller does.
func drawVerdict(t *rapid.T, a message.Attempts) message.Verdict {
	v := message.Verdict{Verb: message.Verb(rapid.IntRange(0, int(message.VerbDrop)).Draw(t, "verb")), Attempts: a}
	v.Published = v.Verb == message.VerbAck || rapid.Bool().Draw(t, "published")
	switch {
	case v.Verb == message.VerbRetry:
		v.Delay = rapid.SampledFrom([]time.Duration{0, never}).Draw(t, "delay")
		v.Attempts.Failures++
		v.Attempts.Begun++
	case v.Verb == message.VerbDeadLetter:
		v.Reason = rapid.SampledFrom([]string{"", "refused", "1:2:3", "ключ\x00"}).Draw(t, "reason")
		v.Attempts.Begun++
	case v.Verb == message.VerbPark:
		v.Slot = drawnSlots[3+rapid.IntRange(0, 2).Draw(t, "slot")]
		v.Reason = rapid.SampledFrom([]string{"", "full", "1:2 no leader"}).Draw(t, "reason")
	case v.Verb == message.VerbRelease && v.Published:
		v.Attempts.Begun++
		v.Attempts.MaybeOut++
		v.Attempts.Unknowns++
	}
	return v
}

func (m *machine) reclaim(t *rapid.T) {
	shard := drawShard(t)
	r := message.Reclaim{Instance: rapid.SampledFrom(instances).Draw(t, "instance"), Foreign: rapid.Bool().Draw(t, "foreign")}
	if known := m.held[shard]; len(known) > 0 && rapid.Bool().Draw(t, "stray") {
		r.Stray = rapid.SampledFrom(known).Draw(t, "claim").request.Token
	}
	m.reclaimAs(t, shard, r)
}

func (m *machine) reclaimAs(t *rapid.T, shard int, r message.Reclaim) bool {
	o := m.oracles[shard]
	eligible := o.reclaimable(r)
	count, more, err := m.q.Shard(shard).Reclaim(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, len(eligible) > 1, more, "more")
	claims, err := m.rdb.HKeys(t.Context(), storetest.Key(m.q.Name(), shard, "claims")).Result()
	require.NoError(t, err)
	var chosen []string
	for token := range o.claims {
		if !slices.Contains(claims, token) {
			chosen = append(chosen, token)
		}
	}
	if len(eligible) == 0 {
		require.Empty(t, chosen)
		require.Zero(t, count)
	} else {
		require.Len(t, chosen, 1, "one claim a run")
		require.Contains(t, eligible, chosen[0])
		require.Equal(t, len(o.claims[chosen[0]].members), count)
		o.reclaim(chosen[0])
	}
	return more
}

// lapse ends a lease: handed over, or run out.
func (m *machine) lapse(t *rapid.T) {
	shard := drawShard(t)
	o := m.oracles[shard]
	if rapid.Bool().Draw(t, "run out") {
		require.NoError(t, m.rdb.Del(t.Context(), storetest.Key(m.q.Name(), shard, "holder")).Err())
		o.holder = nil
		return
	}
	instance := rapid.SampledFrom(instances).Draw(t, "instance")
	require.NoError(t, m.q.Shard(shard).HandOver(t.Context(), instance))
	if o.holder != nil && o.holder.owner == instance {
		o.holder = nil
	}
}

// drain publishes all that is left, as a new instance, and finds nothing then.
func (m *machine) drain(t *rapid.T) {
	for shard, o := range m.oracles {
		require.NoError(t, m.rdb.Del(t.Context(), storetest.Key(m.q.Name(), shard, "holder")).Err())
		o.holder = nil
		token := message.ClaimToken{Instance: "last", Number: 1}
		m.ask(t, shard, message.ClaimRequest{Token: token, Timeout: never, Lease: lease})
		for m.reclaimAs(t, shard, message.Reclaim{Instance: token.Instance, Foreign: true}) {
			continue
		}
		for member := range maps.Clone(o.entries) {
			id, key := message.SplitMember(member)
			answer := m.q.Producer().Reschedule(t.Context(), id, key, store.When{Ms: 1}, store.Durability{})
			require.NoError(t, answer.Err)
			require.Equal(t, o.reschedule(member, 1), answer.Code)
		}
		for len(o.entries) > 0 {
			token.Number++
			m.ask(t, shard, message.ClaimRequest{Token: token, Max: 2, Timeout: never, Lease: lease})
			h := m.held[shard][len(m.held[shard])-1]
			s := settlement(h.claim, acked)
			stale, err := m.q.Shard(shard).Settle(t.Context(), s)
			require.NoError(t, err)
			require.Equal(t, o.settle(s, h.generations, nil), stale)
		}
		left, err := m.rdb.Exists(t.Context(), storetest.Key(m.q.Name(), shard, "due"),
			storetest.Key(m.q.Name(), shard, "msg")).Result()
		require.NoError(t, err)
		require.Zero(t, left, "keys of a drained shard")
	}
	m.check(t)
}
