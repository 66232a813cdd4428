package api

import (
	"context"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/operate"
)

const (
	// trackEvery is how often a point is added, trackOver how far back they reach.
	trackEvery = 20 * time.Second
	trackOver  = 10 * time.Minute
	mostPoints = int(trackOver/trackEvery) + 1
)

// track keeps the rates and the lateness of the last ten minutes, whether anybody looks or
// not: who opens the console at three in the morning must see what was before. A point
// costs one pipeline a node.
type track struct {
	*core

	mu    sync.Mutex
	marks map[string][]mark // by queue, the oldest first
}

// mark is what was counted at one time.
type mark struct {
	at   time.Time
	life string
	// counters are nil if Redis did not tell all of them.
	counters map[string]int64
	lateness operate.Histogram
}

func newTrack(c *core) *track { return &track{core: c, marks: map[string][]mark{}} }

func (t *track) register() {
	register(t.core, operation{
		id: "recent", method: http.MethodGet, path: "/queues/{queue}/recent", roles: viewers,
		summary: "Show the rates and the lateness of the last ten minutes, as far as the instance that is asked has run so long",
	}, t.showRecent)
}

// run adds points until ctx ends.
func (t *track) run(ctx context.Context) {
	for {
		t.add(ctx)
		if !wait.Sleep(ctx, trackEvery) {
			return
		}
	}
}

// add asks all queues at once: one whose Redis does not answer takes no time from the others.
func (t *track) add(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	queues := t.config.Queues()
	t.forget(queues)
	var asking sync.WaitGroup
	for name, queue := range queues {
		asking.Go(func() {
			m := t.look(ctx, queue)
			t.mu.Lock()
			defer t.mu.Unlock()
			marks := append(t.marks[name], m)
			t.marks[name] = marks[max(0, len(marks)-mostPoints):]
		})
	}
	asking.Wait()
}

// forget leaves out the queues that were removed.
func (t *track) forget(queues map[string]*operate.Queue) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.marks, func(name string, _ []mark) bool { return queues[name] == nil })
}

func (t *track) look(ctx context.Context, queue *operate.Queue) mark {
	m := mark{at: time.Now(), lateness: t.config.Lateness(queue.Name)}
	found, err := queue.Admin().Counters(ctx, operate.Rated)
	if err != nil {
		return m
	}
	sum := map[string]int64{}
	for _, counter := range operate.Rated {
		sum[counter] = found.Retired[counter]
		for _, shard := range found.Shards {
			if shard == nil {
				return m
			}
			sum[counter] += shard[counter]
		}
	}
	m.life, m.counters = found.Life, sum
	return m
}

// Point is a part of the last ten minutes. What is not known is not there.
type Point struct {
	At        string   `json:"at" format:"date-time" doc:"When it ends."`
	Over      float64  `json:"over_s" doc:"Its length in seconds."`
	Scheduled *float64 `json:"scheduled,omitempty" doc:"Messages per second, of the whole queue; absent if Redis did not answer."`
	Published *float64 `json:"published,omitempty"`
	P50       *float64 `json:"p50_s,omitempty" doc:"Lateness of the messages published by the instance that was asked; absent if it has published none."`
	P99       *float64 `json:"p99_s,omitempty"`
}

type recentOutput struct {
	Body struct {
		Points []Point `json:"points" nullable:"false" doc:"Oldest first."`
	}
}

func (t *track) showRecent(_ context.Context, in *QueueParam) (*recentOutput, error) {
	t.mu.Lock()
	marks := t.marks[in.Queue] // What is there does not change.
	t.mu.Unlock()
	out := &recentOutput{}
	out.Body.Points = []Point{}
	for i := 1; i < len(marks); i++ {
		out.Body.Points = append(out.Body.Points, marks[i].since(&marks[i-1]))
	}
	return out, nil
}

// since is what came between two marks.
func (m *mark) since(before *mark) Point {
	over := m.at.Sub(before.at).Seconds()
	p := Point{At: operate.Stamp(m.at), Over: over}
	rate := func(counter string) *float64 {
		more := m.counters[counter] - before.counters[counter]
		if m.counters == nil || before.counters == nil || m.life != before.life || more < 0 {
			return nil
		}
		return new(float64(more) / over)
	}
	p.Scheduled, p.Published = rate("scheduled"), rate("published")
	if h := m.lateness.Minus(before.lateness); h.Count() > 0 {
		p50, p99 := h.Percentiles()
		p.P50, p.P99 = &p50, &p99
	}
	return p
}
