package api

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/operate"
)

const (
	// viewFor is how long an overview is shown again, at least: several people who
	// look cost Redis what one does.
	viewFor = time.Second
	// longestView is how old an overview may be.
	longestView = 10 * time.Second
	// viewTimeout bounds what an overview waits for Redis.
	viewTimeout = 5 * time.Second
	// ratesOver and latenessOver are how far back rates and lateness reach, where
	// somebody has looked for that long.
	ratesOver    = 10 * time.Second
	latenessOver = time.Minute
)

// overview reads what all queues hold, for whoever asks at the same time.
type overview struct {
	config *Config

	mu   sync.Mutex
	last *snapshot
	next time.Time // when Redis may be asked again
}

// snapshot is what was read at one time. Nobody changes it.
type snapshot struct {
	*moment

	queues map[string]*operate.Queue
	looks  map[string]*operate.Look
	// earlier are the moments of the last minute, and one before it.
	earlier []*moment
}

// moment is what rates are made of.
type moment struct {
	at time.Time
	// counters and lateness are by queue; a queue that could not be read has no counters.
	counters map[string]map[string]int64
	lateness map[string]operate.Histogram
}

func newOverview(config *Config) *overview { return &overview{config: config} }

// look is the newest snapshot. It is as old as a second, or older where reading it takes
// long: that takes a twentieth of the time at most. Other queues than before are read at once.
func (v *overview) look(ctx context.Context) *snapshot {
	v.mu.Lock()
	defer v.mu.Unlock()
	queues := v.config.Queues()
	if v.last != nil && time.Now().Before(v.next) && maps.Equal(queues, v.last.queues) {
		return v.last
	}
	began := time.Now()
	s := v.read(context.WithoutCancel(ctx), queues) // Who waits meanwhile sees the same.
	v.next = time.Now().Add(min(max(viewFor, wait.Rest(time.Since(began))), longestView))
	if v.last != nil {
		s.earlier = append(slices.Clone(v.last.earlier), v.last.moment)
		for len(s.earlier) > 1 && s.at.Sub(s.earlier[1].at) >= latenessOver {
			s.earlier = s.earlier[1:]
		}
	}
	v.last = s
	return s
}

// age is how many seconds ago it was read.
func (s *snapshot) age() float64 { return time.Since(s.at).Seconds() }

// since returns the oldest moment at most over before the snapshot; nil if there is
// none.
func (s *snapshot) since(over time.Duration) *moment {
	for _, m := range s.earlier {
		if s.at.Sub(m.at) <= over {
			return m
		}
	}
	return nil
}

// read looks at all queues.
func (v *overview) read(ctx context.Context, all map[string]*operate.Queue) *snapshot {
	s := &snapshot{
		moment: &moment{at: time.Now(), counters: map[string]map[string]int64{}, lateness: map[string]operate.Histogram{}},
		queues: all, looks: map[string]*operate.Look{},
	}
	names := slices.Sorted(maps.Keys(all))
	var queues []*operate.Queue
	var before []*operate.Look
	for _, name := range names {
		queues, s.lateness[name] = append(queues, all[name]), v.config.Lateness(name)
		if v.last != nil {
			before = append(before, v.last.looks[name])
		}
	}
	for i, l := range operate.LookAt(ctx, queues, before, viewTimeout) {
		if s.looks[names[i]] = l; l.Err == nil {
			s.counters[names[i]] = l.Sum.Counters
		}
	}
	return s
}

// of is the look at a queue, which may have been removed since the call began.
func (s *snapshot) of(name string) (*operate.Look, error) {
	look := s.looks[name]
	if look == nil {
		return nil, notFound("there is no queue " + name)
	}
	return look, look.Err
}

// view is a queue as the snapshot has it.
func (s *snapshot) view(name string) operate.QueueView {
	return s.looks[name].View(s.rates(name), s.latenessOf(name))
}

func (s *snapshot) rates(name string) *operate.Rates {
	earlier := s.since(ratesOver)
	if earlier == nil || earlier.counters[name] == nil {
		return nil
	}
	return operate.RatesBetween(earlier.counters[name], s.counters[name], s.at.Sub(earlier.at))
}

func (s *snapshot) latenessOf(name string) *operate.Lateness {
	if earlier := s.since(latenessOver); earlier != nil {
		return operate.ViewLateness(s.lateness[name].Minus(earlier.lateness[name]), s.at.Sub(earlier.at))
	}
	return operate.ViewLateness(s.lateness[name], 0)
}
