package membership

import (
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/sharding"
)

// share is the part of the queue's shards that this instance polls.
type share struct {
	config *Config

	// name is the instance's: shares go by names.
	name     string
	assigned []int // nil before the first time
	of       int   // how many the queue had then
	sources  sources
	toldAt   time.Time
}

// keeps reports whether this instance is the queue's keeper.
func (s *share) keeps(live []string) bool { return sharding.QueueOwner(s.config.Queue, live) == s.name }

// assign gives the poller those of the shards that this instance owns.
func (s *share) assign(poller Poller, live []string, shards int, changed func()) {
	owned := sharding.Owned(s.config.Queue, shards, s.name, live)
	if s.assigned != nil && slices.Equal(owned, s.assigned) && shards == s.of {
		return
	}
	if err := poller.Assign(owned, shards); err != nil {
		return // It was stopped.
	}
	s.of = shards
	gained, lost := without(owned, s.assigned), without(s.assigned, owned)
	s.sources.note(s.config.Queue, gained, live, shards)
	s.assigned = append(make([]int, 0, len(owned)), owned...)
	s.config.Hear(s.assigned, changed)
	s.config.Logger.Info("shards assigned", "event", "assign", "instances", len(live),
		"shards", len(owned), "of", shards, "gained", joined(gained), "lost", joined(lost))
}

// tell logs, at most once a second, which of the assigned shards the instance
// has come to hold, and from whom.
func (s *share) tell(now time.Time, poller Poller) {
	if now.Sub(s.toldAt) < beatEvery {
		return
	}
	s.toldAt = now
	got := poller.Gains()
	shards := slices.Sorted(slices.Values(slices.Concat(got.Free, got.Lapsed)))
	if len(shards) == 0 && got.Reclaimed == 0 {
		return
	}
	from, text := s.sources.take(shards), "shards obtained"
	if len(from) > 0 {
		text = "shards taken over"
	}
	s.config.Logger.Info(text, "event", "assign", "shards", len(shards), "which", joined(shards), "from", joined(from),
		"lapsed", len(got.Lapsed), "reclaimed", got.Reclaimed)
}

// sources are the instances from which shards were gained.
type sources struct {
	live   []string // at the last assignment
	shards int      // then
	of     map[int]string
}

// note remembers the owners of the gained shards at the last assignment.
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

// take returns the sources of the shards, each once, and forgets them.
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
