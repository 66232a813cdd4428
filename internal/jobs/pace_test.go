package jobs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
)

// TestPace makes steps by a clock of the test: however long they take, the rate is held on
// average, and no second has more than two seconds' worth.
func TestPace(t *testing.T) {
	t.Parallel()
	const perStep = 200 // what the store does at once
	for name, c := range map[string]struct {
		rate  int
		takes func(step int) time.Duration
		least int // of a minute at that rate, in percent
	}{
		"fast steps":    {500, func(int) time.Duration { return 10 * time.Millisecond }, 99},
		"slow steps":    {500, func(int) time.Duration { return 380 * time.Millisecond }, 99},
		"uneven steps":  {500, func(step int) time.Duration { return time.Duration(step%2) * 600 * time.Millisecond }, 98},
		"a long stall":  {500, func(step int) time.Duration { return time.Duration(step/40%2*(1-min(1, step%40))) * 10 * time.Second }, 60},
		"one a second":  {1, func(int) time.Duration { return 300 * time.Millisecond }, 98},
		"too slow ones": {500, func(int) time.Duration { return time.Second }, 39},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			now, end := begin, begin.Add(time.Minute)
			p := newPace(&job.Spec{Rate: c.rate}, now)
			type done struct {
				at       time.Time
				messages int
			}
			var all []done
			sum := 0
			for step := 0; now.Before(end); step++ {
				if next := p.next(); next.After(now) {
					now = next
				}
				n := min(p.room(now), perStep)
				all, sum = append(all, done{now, n}), sum+n
				now = now.Add(c.takes(step))
				p.spend(n)
			}
			require.GreaterOrEqual(t, sum*100, c.rate*60*c.least, "in a minute")
			require.LessOrEqual(t, sum, c.rate*61)
			for i := range all {
				burst := 0
				for _, d := range all[i:] {
					if d.at.Sub(all[i].at) < time.Second {
						burst += d.messages
					}
				}
				require.LessOrEqual(t, burst, 2*c.rate, "from %v on", all[i].at.Sub(begin))
			}
		})
	}
}

// TestNoPace: without a rate, and where a job only counts, there is no pause.
func TestNoPace(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, spec := range []job.Spec{{}, {Rate: 1, DryRun: true}} {
		p := newPace(&spec, now)
		p.spend(store.MaxBatch)
		require.False(t, p.next().After(now))
		require.Equal(t, store.MaxBatch, p.room(now))
	}
}
