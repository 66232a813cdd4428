package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/sharding"
	"github.com/delaybridge/delaybridge/internal/store"
)

const (
	// heartbeatEvery is how often an instance says that it lives, shortLease
	// how many times within a lease that is short.
	heartbeatEvery = time.Second
	shortLease     = 5
	// turnGap is the shortest time between two heartbeats, however many hints come.
	turnGap = 20 * time.Millisecond
)

// beatEvery is how often the instance says that it lives.
func (r *queueRunner) beatEvery() time.Duration { return min(heartbeatEvery, r.lease/shortLease) }

// deadAfter is how long an instance is silent before others poll its shards.
// Its lease lasts longer: so they merely wait, but are there when it ends.
func (r *queueRunner) deadAfter() time.Duration { return r.lease * 3 / 5 }

// follow keeps this instance's share: once a second, and when a hint says that
// something has changed, it says that it lives, learns who else does, and polls
// the shards whose owner it is. It returns when ctx ends.
func (r *queueRunner) follow(ctx context.Context) {
	r.reloadAt = time.Now().Add(reloadEvery)
	for changed := false; ctx.Err() == nil; {
		began := time.Now()
		if r.beat(ctx) {
			r.assign() //nolint:contextcheck // The polling outlives ctx, stop ends it.
		}
		if r.layoutDue(began, changed) && r.reload(ctx) {
			r.assign() //nolint:contextcheck // The polling outlives ctx, stop ends it.
		}
		r.tellObtained(began)
		changed = r.awaitTurn(ctx, began)
	}
}

// awaitTurn waits for the next heartbeat, and reports that a change came before.
func (r *queueRunner) awaitTurn(ctx context.Context, began time.Time) (changed bool) {
	timer := time.NewTimer(time.Until(began.Add(r.beatEvery())))
	defer timer.Stop()
	select {
	case <-timer.C:
		return false
	case <-r.changed:
		return sleep(ctx, time.Until(began.Add(turnGap)))
	case <-ctx.Done():
		return false
	}
}

// notice makes the next turn come now. It never blocks.
func (r *queueRunner) notice() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// beat says that this instance lives, and learns who does. Without an answer
// all stays as it was: the leases decide.
func (r *queueRunner) beat(ctx context.Context) bool {
	callCtx, cancel := context.WithTimeout(ctx, store.DefaultTimeout)
	defer cancel()
	beats, err := r.queue.Heartbeat(callCtx, r.instance, r.deadAfter())
	if err != nil {
		if ctx.Err() == nil && !r.unheard {
			r.unheard = true
			r.logger.Warn("heartbeat failed, the shards stay as they are", "event", "heartbeat", "err", err)
		}
		return false
	}
	live := make([]string, len(beats))
	for i, beat := range beats {
		live[i] = beat.Instance
	}
	if r.unheard {
		r.unheard = false
		r.logger.Info("heartbeat works again", "event", "heartbeat", "instances", len(live))
	}
	r.health.redisAnswered()
	before := r.members.live
	r.members.note(time.Now(), live, r.deadAfter())
	if joining, gone := without(r.members.live, before), without(before, r.members.live); len(joining)+len(gone) > 0 {
		r.logger.Info("instances changed", "event", "instances",
			"instances", len(r.members.live), "joined", joined(joining), "gone", joined(gone))
	}
	r.metrics.Instances(r.queue.Name(), len(live))
	return true
}

// assign polls the shards whose owner this instance is.
func (r *queueRunner) assign() {
	name, live, layout := r.queue.Name(), r.members.live, r.layout.Load()
	if len(live) == 0 {
		return // No heartbeat was answered yet.
	}
	r.keeps.Store(sharding.QueueOwner(name, live) == r.instance)
	owned := sharding.Owned(name, layout.InUse(), r.instance, live)
	if r.assigned != nil && slices.Equal(owned, r.assigned) {
		return
	}
	p := r.polling()
	if err := p.Assign(owned); err != nil {
		return // It was stopped.
	}
	gained, lost := without(owned, r.assigned), without(r.assigned, owned)
	r.sources.note(name, gained, live, layout.InUse())
	r.assigned = append(make([]int, 0, len(owned)), owned...)
	r.hints.Set(r.queue, r.assigned, store.Listener{Wake: p.Wake, Changed: r.notice})
	r.logger.Info("shards assigned", "event", "assign", "instances", len(live),
		"shards", len(owned), "of", layout.InUse(), "gained", joined(gained), "lost", joined(lost))
}

// tellObtained says, at most once a second, which of the assigned shards the
// instance has come to hold, and from whom.
func (r *queueRunner) tellObtained(now time.Time) {
	if now.Sub(r.toldAt) < heartbeatEvery {
		return
	}
	r.toldAt = now
	got := r.polling().Obtained()
	shards := slices.Sorted(slices.Values(slices.Concat(got.Free, got.Lapsed)))
	if len(shards) == 0 && got.Reclaimed == 0 {
		return
	}
	from, text := r.sources.take(shards), "shards obtained"
	if len(from) > 0 {
		text = "shards taken over"
	}
	r.logger.Info(text, "event", "assign", "shards", len(shards), "which", joined(shards), "from", joined(from),
		"lapsed", len(got.Lapsed), "reclaimed", got.Reclaimed)
}

// sources are the instances whose shards were gained.
type sources struct {
	live   []string // at the last assignment
	shards int      // then
	of     map[int]string
}

// note remembers whose the gained shards were at the last assignment.
func (s *sources) note(queue string, gained []int, live []string, shards int) {
	if s.of == nil {
		s.of = map[int]string{}
	}
	for _, shard := range gained {
		delete(s.of, shard)
		if shard < s.shards {
			s.of[shard] = sharding.Owner(queue, shard, s.live)
		}
	}
	s.live, s.shards = live, shards
}

// take returns those of the shards, each once, and forgets them.
func (s *sources) take(shards []int) (from []string) {
	for _, shard := range shards {
		if source := s.of[shard]; source != "" && !slices.Contains(from, source) {
			from = append(from, source)
		}
		delete(s.of, shard)
	}
	slices.Sort(from)
	return from
}

// without are those of a that are not in b.
func without[T comparable](a, b []T) []T {
	left := []T{}
	for _, one := range a {
		if !slices.Contains(b, one) {
			left = append(left, one)
		}
	}
	return left
}

// mostListed is how many things one line of the log lists.
const mostListed = 32

// joined lists things in a line of the log, not too many.
func joined[T any](list []T) string {
	var text strings.Builder
	for i, one := range list {
		if i == mostListed {
			fmt.Fprintf(&text, " and %d more", len(list)-i)
			break
		}
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprint(&text, one)
	}
	return text.String()
}

// members are the instances between which the shards are spread.
type members struct {
	live    []string
	heardAt time.Time
	// unsureUntil: after a silence of Redis the first heartbeats find nobody,
	// since all were silent alike. Until then nobody is taken for dead.
	unsureUntil time.Time
}

// note takes the answer to a heartbeat.
func (m *members) note(now time.Time, live []string, deadAfter time.Duration) {
	if !m.heardAt.IsZero() && now.Sub(m.heardAt) > deadAfter/2 {
		m.unsureUntil = now.Add(deadAfter / 2)
	}
	m.heardAt = now
	if now.Before(m.unsureUntil) {
		live = append(slices.Clone(live), m.live...)
		slices.Sort(live)
		live = slices.Compact(live)
	}
	m.live = live
}
