package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/faultproxy"
	"github.com/delaybridge/delaybridge/test/flow"
)

const (
	// linkPause is how long the broker is paused: less than a publish timeout, so
	// that nobody may take it for dead.
	linkPause = 8 * time.Second
	// linkGoal is the least part of the raw pace that the bridge must reach.
	linkGoal = 0.9
	// countedAt is the link for which -count is meant; others get as many more or less.
	countedAt = 400
)

// slowLinks are the links' capacities each way, in kB a second.
var slowLinks = []int{100, countedAt, 2000}

// linkTrial is a world whose broker is behind one slow link.
type linkTrial struct {
	run

	w     *flow.World
	speed int // kB a second
	raw   pace
}

// pace is how fast messages reach the broker.
type pace struct {
	perSecond float64
	bytesEach float64 // of the link's capacity
}

// linkResult is one backlog drained over one link.
type linkResult struct {
	trial  *linkTrial
	paused bool
	count  int
	took   time.Duration
	// sent is how many bytes the link carried, sentPaused those during the pause.
	sent, sentPaused int64
	copies           int
	report           flow.Report
	// before and after are the shards' counters.
	before, after flow.Totals
	course        course
	// resumed is when the broker went on, since the due time.
	resumed time.Duration
}

// linksFigure drains a backlog over slow links, first undisturbed and then with a
// broker that is paused meanwhile, and compares it with what the sink alone
// reaches there with all messages at once.
func linksFigure(ctx context.Context, r run) error {
	var results []*linkResult
	var problems []error
	for _, speed := range slowLinks {
		found, err := r.overLink(ctx, speed)
		results = append(results, found...)
		if err != nil {
			problems = append(problems, fmt.Errorf("links %d kB/s: %w", speed, err))
		}
	}
	printLinks(results)
	for _, result := range results {
		problems = append(problems, result.wrong())
	}
	return errors.Join(problems...)
}

func (r run) overLink(ctx context.Context, speed int) (results []*linkResult, err error) {
	w, err := flow.NewWorld(ctx, flow.Options{
		Binary: r.binary, Broker: r.broker, Shards: r.shards, Redis: []string{"--appendonly", "yes"}, Link: true,
	})
	if err != nil {
		return nil, err
	}
	defer w.Close()
	w.Link.Rate(speed * 1000)
	w.Link.RateReplies(speed * 1000)
	trial := &linkTrial{run: r, w: w, speed: speed}
	count := cmp.Or(r.count, 20000) * speed / countedAt
	if err := trial.measureRaw(ctx, max(1, count/4)); err != nil {
		return nil, err
	}
	for _, paused := range []bool{false, true} {
		result, err := trial.drain(ctx, count, paused)
		if err != nil {
			return results, err
		}
		results = append(results, result)
	}
	return results, nil
}

// drain schedules count messages for one instant and watches them arrive.
func (t *linkTrial) drain(ctx context.Context, count int, paused bool) (*linkResult, error) {
	expected := time.Duration(float64(count) / t.raw.perSecond * float64(time.Second))
	ctx, cancel := context.WithTimeout(ctx, 4*expected+2*time.Minute)
	defer cancel()
	t.w.Topic, t.w.Ledger = fmt.Sprintf("link-%d-%t", t.speed, paused), flow.NewLedger()
	if err := t.w.Broker.MakeTopic(ctx, t.w.Topic); err != nil {
		return nil, err
	}
	published, end, err := t.w.CountPublishes()
	if err != nil {
		return nil, err
	}
	defer end()
	stop := t.w.Consume(ctx)
	due := time.Now().Add(time.Duration(count/20000+3) * time.Second)
	if err := t.schedule(ctx, count, due); err != nil {
		return nil, errors.Join(err, stop())
	}
	result := &linkResult{trial: t, paused: paused, count: count}
	if result.before, err = t.w.Totals(ctx); err != nil {
		return nil, errors.Join(err, stop())
	}
	if err := t.watch(ctx, result, due, expected/2); err != nil {
		return nil, errors.Join(err, stop())
	}
	t.w.Ledger.Await(20*time.Second, time.Second)
	if err := stop(); err != nil {
		return nil, err
	}
	result.report = t.w.Ledger.Report()
	result.copies = published() - (result.report.Scheduled - result.report.Lost)
	result.after, err = t.w.Totals(ctx)
	return result, err
}

// schedule fills the queue before the messages are due.
func (t *linkTrial) schedule(ctx context.Context, count int, due time.Time) error {
	bodies := newBodies()
	for start := 0; start < count; start += 500 {
		requests := make([]delay.Request, min(500, count-start))
		for i := range requests {
			requests[i] = delay.Request{When: delay.At(due), Message: delay.Message{
				ID: fmt.Sprintf("l-%024d", start+i), Topic: t.w.Topic, Body: bodies.next(),
			}}
		}
		results, err := t.w.Client.ScheduleBatch(ctx, requests)
		for i, result := range results {
			if err = errors.Join(err, result.Err); result.Err == nil {
				t.w.Ledger.Scheduled(requests[i].Message, result)
			}
		}
		if err != nil {
			return err
		}
	}
	if time.Now().After(due) {
		return errors.New("the messages were due before all were scheduled")
	}
	return nil
}

// watch follows the drain from the due time on; where the broker is to be paused,
// it is so after a while.
func (t *linkTrial) watch(ctx context.Context, result *linkResult, due time.Time, pauseAfter time.Duration) error {
	if err := pause(ctx, time.Until(due)); err != nil {
		return err
	}
	sentBefore, _ := t.w.Link.Carried()
	watching, stop := context.WithCancel(ctx)
	watched := make(chan error, 1)
	go func() { watched <- result.course.follow(watching, t.w, due) }()
	var err error
	if result.paused {
		result.sentPaused, err = t.pauseBroker(ctx, pauseAfter)
		result.resumed = time.Since(due)
	}
	var drained time.Time
	if err == nil {
		drained, err = t.w.Drained(ctx)
	}
	stop()
	if err := errors.Join(err, <-watched); err != nil {
		return err
	}
	sent, _ := t.w.Link.Carried()
	result.took, result.sent = drained.Sub(due), sent-sentBefore
	return nil
}

// pauseBroker stops the broker's process for a while, and returns how many bytes
// the link carried meanwhile.
func (t *linkTrial) pauseBroker(ctx context.Context, after time.Duration) (sent int64, err error) {
	if err := pause(ctx, after); err != nil {
		return 0, err
	}
	if err := t.w.Broker.Server().Pause(); err != nil {
		return 0, err
	}
	sent, err = carriedBy(t.w.Link, func() error { return pause(ctx, linkPause) })
	return sent, errors.Join(err, t.w.Broker.Server().Resume())
}

// carriedBy measures the bytes that something sends over the link.
func carriedBy(link *faultproxy.Proxy, send func() error) (int64, error) {
	before, _ := link.Carried()
	err := send()
	after, _ := link.Carried()
	return after - before, err
}
