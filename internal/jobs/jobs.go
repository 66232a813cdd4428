// Package jobs runs the operations on many messages at once: cancels, reschedules,
// redrives and purges by a filter. One bridge of the queue at a time runs a job; if
// its bridge dies, another one resumes the job where it was. Package job does one
// step of it, and says why its tally stays true. This package paces the steps, and
// owns the goroutines of the jobs that this instance runs.
package jobs

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

const (
	// lookEvery is the interval between polls for jobs, since a hint may be lost.
	lookEvery = 5 * time.Second
	// pruneEvery is how often ended jobs are forgotten.
	pruneEvery = time.Hour
	// mostRunning is how many jobs of a queue one instance runs at once.
	mostRunning = 4
	// longestPause is the longest wait while Redis is unavailable.
	longestPause = 5 * time.Second
	// saidEvery is the interval at which a lasting failure is logged again.
	saidEvery = time.Minute
	// leftPatience is how long to wait for messages that were in flight when a job came to
	// them: longer than a claim lives. The rests lie between two looks at them.
	leftPatience           = 90 * time.Second
	firstRest, longestRest = 100 * time.Millisecond, 2 * time.Second
	// releasePatience is for giving a job back at the end.
	releasePatience = time.Second
)

// Runner runs the jobs of one queue.
type Runner struct {
	queue    *job.Jobs
	instance string
	logger   *slog.Logger
	wake     chan struct{} // of 1

	mu      sync.Mutex
	running map[string]bool
	done    sync.WaitGroup
}

// New returns a runner, which does nothing until Run.
func New(queue *job.Jobs, instance string, logger *slog.Logger) *Runner {
	return &Runner{queue: queue, instance: instance, logger: logger, running: map[string]bool{}, wake: make(chan struct{}, 1)}
}

// Wake makes it look at once. It does not block.
func (r *Runner) Wake() { wait.Wake(r.wake) }

// Run works until ctx ends, and then gives its jobs back.
func (r *Runner) Run(ctx context.Context) {
	defer r.done.Wait()
	pruned := time.Now()
	for {
		r.look(ctx)
		if time.Since(pruned) > pruneEvery {
			pruned = time.Now()
			_ = r.queue.Prune(ctx) // The next time.
		}
		if !wait.SleepOrWake(ctx, lookEvery, r.wake) {
			return
		}
	}
}

// look starts jobs that nobody runs. Other parts report that Redis is unavailable.
func (r *Runner) look(ctx context.Context) {
	ids, err := r.queue.Ready(ctx)
	if err != nil {
		return
	}
	for _, id := range ids {
		if !r.begin(id) {
			continue
		}
		r.done.Go(func() {
			defer r.end(id)
			r.run(ctx, id)
		})
	}
}

func (r *Runner) begin(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[id] || len(r.running) >= mostRunning {
		return false
	}
	r.running[id] = true
	return true
}

func (r *Runner) end(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, id)
}

// run takes the job, if it can, and makes its steps.
func (r *Runner) run(ctx context.Context, id string) {
	run, err := r.queue.Take(ctx, id, r.instance)
	if err != nil {
		return // Another instance runs it, or Redis is unavailable.
	}
	logger := r.logger.With("job", id, "verb", run.Job().Spec.Verb)
	logger.Info("running job", "event", "job_start")
	if r.steps(ctx, run, logger) {
		j := run.Job()
		logger.Info("job has ended", "event", "job_end", "state", j.State, "matched", j.Tally.Matched, "done", j.Tally.Done,
			"maybe_published", j.Tally.MaybePublished, "too_late", j.Tally.TooLate, "gone", j.Tally.Gone,
			"failed", j.Tally.Failed, "unknown", j.Tally.Unknown, "remaining", remaining(&j), "reason", j.Err)
		r.Wake() // Another one may have waited for it.
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releasePatience)
	defer cancel()
	_ = run.Release(ctx) // If this fails, it is taken when the lease has lapsed.
}

// remaining is how many messages still match; nil if nobody knows.
func remaining(j *job.Job) any {
	if j.Remaining == nil {
		return nil
	}
	return *j.Remaining
}

// steps makes steps, on average no faster than the job's rate, and reports whether it has ended.
func (r *Runner) steps(ctx context.Context, run *job.Run, logger *slog.Logger) bool {
	spec := run.Job().Spec
	pace := newPace(&spec, time.Now())
	pause := wait.Backoff{Initial: 100 * time.Millisecond, Limit: longestPause}
	rest := wait.Backoff{Initial: firstRest, Limit: longestRest}
	var said, waits time.Time // when a failure was last logged; since when it waits for messages in flight
	for wait.Sleep(ctx, time.Until(pace.next())) {
		var changed int
		var err error
		switch {
		case !run.Waits():
			changed, err = run.Step(ctx, pace.room(time.Now()))
		case !waits.IsZero() && time.Since(waits) > leftPatience:
			err = run.Finish(ctx)
		default:
			if waits.IsZero() {
				waits = time.Now()
			}
			if !wait.Sleep(ctx, rest.Next()) {
				return false
			}
			changed, err = run.Step(ctx, pace.room(time.Now()))
		}
		pace.spend(changed)
		switch {
		case errors.Is(err, job.ErrLost):
			return false
		case err != nil:
			if time.Since(said) > saidEvery {
				said = time.Now()
				logger.Warn("job has to wait", "event", "job_wait", "err", err)
			}
			if !wait.Sleep(ctx, pause.Next()) {
				return false
			}
			continue
		}
		pause.Reset()
		if run.Job().State.Ended() {
			return true
		}
	}
	return false
}

const (
	// stepsPerSecond is how many steps a job with a rate makes, if all goes well.
	stepsPerSecond = 4
	// mostSaved bounds how much lost time is made up for.
	mostSaved = time.Second
)

// pace keeps a job's rate on average: larger steps make up for a slow one, with at most
// a second's worth of messages, so no burst is larger than that.
type pace struct {
	rate int       // messages a second; 0: no limit
	paid time.Time // when the changes so far would end at that rate
}

// newPace starts with nothing saved. A dry run changes nothing and so has no rate.
func newPace(spec *job.Spec, now time.Time) *pace {
	if spec.DryRun {
		return &pace{paid: now}
	}
	return &pace{rate: spec.Rate, paid: now}
}

// least returns how many messages are worth a step.
func (p *pace) least() int { return min(max(1, p.rate/stepsPerSecond), store.MaxBatch) }

// next returns when there is room for a step.
func (p *pace) next() time.Time { return p.paid.Add(p.cost(p.least())) }

// room returns how many messages a step that begins now may change.
func (p *pace) room(now time.Time) int {
	if p.rate == 0 {
		return store.MaxBatch
	}
	if oldest := now.Add(-mostSaved); p.paid.Before(oldest) {
		p.paid = oldest
	}
	return min(max(p.least(), int(now.Sub(p.paid).Seconds()*float64(p.rate))), store.MaxBatch)
}

// spend records how many messages a step has changed.
func (p *pace) spend(changed int) { p.paid = p.paid.Add(p.cost(changed)) }

func (p *pace) cost(messages int) time.Duration {
	if p.rate == 0 {
		return 0
	}
	return time.Duration(messages) * time.Second / time.Duration(p.rate)
}
