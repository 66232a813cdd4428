package upkeep

import (
	"math"
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

const (
	// growthOver is the span over which growth is measured, growthEvery the interval.
	growthOver  = 10 * time.Minute
	growthEvery = 10 * time.Second
	// growthAhead limits a forecast to that many times the observed span: a day after ten
	// minutes. A few seconds of growth say nothing about tomorrow.
	growthAhead = 144
	// growthParts is how many parts of the span are compared, and growthBursts how many of
	// them are left out: two, since a burst may span two parts.
	growthParts, growthBursts = 5, 2
)

// Growth is how many bytes of a limit were used in the last minutes. It is safe for
// concurrent use.
type Growth struct {
	mu      sync.Mutex
	limit   int64
	samples []usage // the oldest first
	last    usage
}

type usage struct {
	at   time.Time
	used int64
}

// Add records the use and the limit.
func (g *Growth) Add(at time.Time, used, limit int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last, g.limit = usage{at, used}, limit
	if n := len(g.samples); n == 0 || at.Sub(g.samples[n-1].at) >= growthEvery {
		g.samples = append(g.samples, g.last)
	}
	for len(g.samples) > 1 && at.Sub(g.samples[1].at) >= growthOver {
		g.samples = g.samples[1:]
	}
}

// Forget clears it when there is no longer a limit.
func (g *Growth) Forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit, g.samples, g.last = 0, nil, usage{}
}

// Age returns the time since the last Add.
func (g *Growth) Age() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Since(g.last.at)
}

// FullIn returns the number of seconds until the limit is reached, if use keeps growing as it
// did; +Inf if it does not grow. It divides the observed span into five equal parts and leaves
// out the two that grew most, because a single burst says nothing about the hours to come.
func (g *Growth) FullIn() float64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.samples) == 0 {
		return math.Inf(1)
	}
	if g.last.used >= g.limit {
		return 0
	}
	var grown [growthParts]float64
	first := g.samples[0].at
	part := g.last.at.Sub(first) / growthParts
	for i := range grown {
		from := first.Add(time.Duration(i) * part)
		grown[i] = g.usedAt(from.Add(part)) - g.usedAt(from)
	}
	slices.Sort(grown[:])
	typical := 0.0
	for _, bytes := range grown[:growthParts-growthBursts] {
		typical += bytes / (growthParts - growthBursts)
	}
	if part <= 0 || typical <= 0 {
		return math.Inf(1)
	}
	return float64(g.limit-g.last.used) / typical * part.Seconds()
}

// usedAt returns the use at a time between the first sample and the last.
func (g *Growth) usedAt(at time.Time) float64 {
	next := slices.IndexFunc(g.samples, func(u usage) bool { return u.at.After(at) })
	if next == 0 {
		return float64(g.samples[0].used)
	}
	until := g.last
	if next < 0 {
		next = len(g.samples)
	} else {
		until = g.samples[next]
	}
	since := g.samples[next-1]
	over := until.at.Sub(since.at)
	if over <= 0 {
		return float64(until.used)
	}
	return float64(since.used) + float64(until.used-since.used)*min(1, float64(at.Sub(since.at))/float64(over))
}

// Room returns the form for the API and commands; nil if nothing is known.
func (g *Growth) Room() *inspect.Room {
	fullIn := time.Duration(min(g.FullIn(), math.MaxInt32) * float64(time.Second))
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.last.at.IsZero() {
		return nil
	}
	room := &inspect.Room{Used: g.last.used, Limit: g.limit}
	if fullIn <= growthAhead*g.last.at.Sub(g.samples[0].at) {
		room.FullAt = g.last.at.Add(fullIn)
	}
	return room
}
