package trial

import (
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
)

// CountShards makes the ledger record to which of that many shards each arrival belongs.
// It is called before the first one.
func (l *Ledger) CountShards(shards int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = make([]time.Time, shards)
}

// noteShard holds l.mu.
func (l *Ledger) noteShard(p *promise, r Record) {
	if len(l.last) == 0 || len(p.records) > 0 { // A copy is no progress.
		return
	}
	shard := layout.Home(p.key, r.ID, len(l.last))
	if r.At.After(l.last[shard]) {
		l.last[shard] = r.At
	}
}

// Behind is how many shards have had no arrival since then.
func (l *Ledger) Behind(since time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	behind := 0
	for _, at := range l.last {
		if !at.After(since) {
			behind++
		}
	}
	return behind
}

// Resumed is when the first arrival of each shard came after that instant; zero
// if none did. It needs CountShards.
func (l *Ledger) Resumed(since time.Time) []time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	resumed := make([]time.Time, len(l.last))
	for shard, arrivals := range l.firsts(func(time.Time) *Phase { return &Phase{} }) {
		for _, at := range arrivals {
			if at.After(since) && (resumed[shard].IsZero() || at.Before(resumed[shard])) {
				resumed[shard] = at
			}
		}
	}
	return resumed
}

// Mark is the beginning of a phase of a run.
type Mark struct {
	Name string
	At   time.Time
}

// Phase is what arrived from a mark to the next one.
type Phase struct {
	Name                            string
	Arrived, Duplicates, OutOfOrder int
	MaxLateness                     time.Duration
	// Gaps holds, for each shard, the longest time without a first copy that
	// ended in this phase.
	Gaps []time.Duration
}

// Worst is the shard with the longest gap.
func (p Phase) Worst() (shard int, gap time.Duration) {
	gap = slices.Max(p.Gaps)
	return slices.Index(p.Gaps, gap), gap
}

// Normal is the median of the shards' longest gaps.
func (p Phase) Normal() time.Duration { return slices.Sorted(slices.Values(p.Gaps))[len(p.Gaps)/2] }

// Phases divides what arrived by the marks, which are in the order of time. What
// came before the first mark belongs to no phase. It needs CountShards.
func (l *Ledger) Phases(marks []Mark) []Phase {
	l.mu.Lock()
	defer l.mu.Unlock()
	phases := make([]Phase, len(marks))
	for i, mark := range marks {
		phases[i] = Phase{Name: mark.Name, Gaps: make([]time.Duration, len(l.last))}
	}
	in := func(at time.Time) *Phase {
		for i := len(marks) - 1; i >= 0; i-- {
			if !at.Before(marks[i].At) {
				return &phases[i]
			}
		}
		return &Phase{Gaps: make([]time.Duration, len(l.last))}
	}
	for shard, arrivals := range l.firsts(in) {
		slices.SortFunc(arrivals, time.Time.Compare)
		for i := 1; i < len(arrivals); i++ {
			gaps := in(arrivals[i]).Gaps
			gaps[shard] = max(gaps[shard], arrivals[i].Sub(arrivals[i-1]))
		}
	}
	for _, late := range l.disordered() {
		in(late.at).OutOfOrder++
	}
	return phases
}

// firsts counts arrivals into their phases, and returns when the first copies of
// each shard came.
func (l *Ledger) firsts(in func(time.Time) *Phase) [][]time.Time {
	shards := make([][]time.Time, len(l.last))
	for id, p := range l.promises {
		for i, a := range p.records {
			phase := in(a.at)
			phase.Arrived++
			if i > 0 {
				phase.Duplicates++
				continue
			}
			phase.MaxLateness = max(phase.MaxLateness, a.at.Sub(a.due))
			shard := layout.Home(p.key, id, len(shards))
			shards[shard] = append(shards[shard], a.at)
		}
	}
	return shards
}
