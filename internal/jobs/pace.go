package jobs

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
)

const (
	// stepsPerSecond is how many steps a job with a rate makes, if all goes well.
	stepsPerSecond = 4
	// mostSaved bounds what is made up for.
	mostSaved = time.Second
)

// pace holds a job's rate on average: what a slow step has cost is made up for by larger
// ones, of a second's worth at the most, so that no burst is larger than that.
type pace struct {
	rate int       // messages a second; 0: no limit
	paid time.Time // what was changed so far has taken the time until then
}

// newPace begins with nothing saved. Counting changes nothing and so has no rate.
func newPace(spec *job.Spec, now time.Time) *pace {
	if spec.DryRun {
		return &pace{paid: now}
	}
	return &pace{rate: spec.Rate, paid: now}
}

// least is how many messages a step is made for.
func (p *pace) least() int { return min(max(1, p.rate/stepsPerSecond), store.MaxBatch) }

// next is when there is room for a step.
func (p *pace) next() time.Time { return p.paid.Add(p.cost(p.least())) }

// room is how many messages a step may change that begins now.
func (p *pace) room(now time.Time) int {
	if p.rate == 0 {
		return store.MaxBatch
	}
	if oldest := now.Add(-mostSaved); p.paid.Before(oldest) {
		p.paid = oldest
	}
	return min(max(p.least(), int(now.Sub(p.paid).Seconds()*float64(p.rate))), store.MaxBatch)
}

// spend notes how many messages a step has changed.
func (p *pace) spend(changed int) { p.paid = p.paid.Add(p.cost(changed)) }

func (p *pace) cost(messages int) time.Duration {
	if p.rate == 0 {
		return 0
	}
	return time.Duration(messages) * time.Second / time.Duration(p.rate)
}
