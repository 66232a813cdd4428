package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/faultproxy"
	"github.com/delaybridge/delaybridge/test/trial"
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

	w     *trial.World
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
	report           trial.Report
	// before and after are the shards' counters.
	before, after trial.Totals
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
	w, err := r.world(ctx, trial.Options{Link: true})
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
	t.w.Topic, t.w.Ledger = fmt.Sprintf("link-%d-%t", t.speed, paused), trial.NewLedger()
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
	if err := trial.Sleep(ctx, time.Until(due)); err != nil {
		return err
	}
	sentBefore, _ := t.w.Link.Carried()
	if result.paused {
		var err error
		if result.sentPaused, err = t.pauseBroker(ctx, pauseAfter); err != nil {
			return err
		}
	}
	drained, err := t.w.Drained(ctx)
	if err != nil {
		return err
	}
	sent, _ := t.w.Link.Carried()
	result.took, result.sent = drained.Sub(due), sent-sentBefore
	return nil
}

// pauseBroker stops the broker's process for a while, and returns how many bytes
// the link carried meanwhile.
func (t *linkTrial) pauseBroker(ctx context.Context, after time.Duration) (sent int64, err error) {
	if err := trial.Sleep(ctx, after); err != nil {
		return 0, err
	}
	if err := t.w.Broker.Server().Pause(); err != nil {
		return 0, err
	}
	sent, err = carriedBy(t.w.Link, func() error { return trial.Sleep(ctx, linkPause) })
	return sent, errors.Join(err, t.w.Broker.Server().Resume())
}

// carriedBy measures the bytes that something sends over the link.
func carriedBy(link *faultproxy.Proxy, send func() error) (int64, error) {
	before, _ := link.Carried()
	err := send()
	after, _ := link.Carried()
	return after - before, err
}

// ofRaw is the pace relative to the sink alone.
func (r *linkResult) ofRaw() float64 { return r.perSecond() / r.trial.raw.perSecond }

// perSecond is the pace without the pause and without what the link carried
// meanwhile: what was in flight goes on until it stands in front of the broker.
func (r *linkResult) perSecond() float64 {
	took, count := r.took, r.count
	if r.paused {
		took, count = took-linkPause, count-int(float64(r.sentPaused)/r.trial.raw.bytesEach)
	}
	return rate(count, took)
}

// counted is how far one of the shards' counters went meanwhile.
func (r *linkResult) counted(name string) int64 {
	return r.after.Counters[name] - r.before.Counters[name]
}

// wrong is what the run missed of its goals.
func (r *linkResult) wrong() error {
	if r.copies == 0 && r.ofRaw() >= linkGoal && r.report.Wrong() == 0 && r.report.Duplicates == 0 && r.after.Dead == 0 {
		return nil
	}
	return fmt.Errorf("links %d kB/s, broker paused %t: %.2f of raw, %d copies, %d twice, %d dead letters, broken promises: %d",
		r.trial.speed, r.paused, r.ofRaw(), r.copies, r.report.Duplicates, r.after.Dead, r.report.Wrong())
}

// printLinks prints the table.
func printLinks(results []*linkResult) {
	fmt.Printf("\n| of raw | bytes of raw's | raw of link | copies | lost | twice | broker | kB/s | paused | messages | raw/s | bridge/s | parked | released | suspected | reclaimed | stale |\n")
	fmt.Printf("|%s\n", strings.Repeat("---|", 17))
	for _, r := range results {
		raw := r.trial.raw
		fmt.Printf("| %.2f | %.2f | %.2f | %d | %d | %d | %s | %d | %t | %d | %.0f | %.0f | %d | %d | %d | %d | %d |\n",
			r.ofRaw(), float64(r.sent)/float64(r.count)/raw.bytesEach, raw.perSecond*raw.bytesEach/1000/float64(r.trial.speed),
			r.copies, r.report.Lost, r.report.Duplicates, r.trial.broker, r.trial.speed, r.paused,
			r.count, raw.perSecond, r.perSecond(), r.counted("parked"), r.counted("released"),
			r.counted("suspected_duplicates"), r.counted("reclaimed"), r.counted("stale_settles"))
	}
}
