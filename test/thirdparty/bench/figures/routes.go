package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/test/trial"
)

// routesFigure compares the lateness of healthy messages beside a topic that fails
// with that in a world of their own: both at the same time, so that what else the
// machine does counts for both, and when both are warm. -count messages are due for the topic at the start
// (6,000), and one in ten of the load is for it. Then it compares that besides what is
// parked, when nothing more comes for it. Then the topic is healed, and what was parked
// must arrive: all of it, once, in due order per Key.
func routesFigure(ctx context.Context, r run) error {
	alone, err := r.world(ctx, trial.Options{})
	if err != nil {
		return err
	}
	defer alone.Close()
	w, err := r.world(ctx, trial.Options{Kafka: trial.PatientKafka})
	if err != nil {
		return err
	}
	defer w.Close()
	short := r
	short.window = min(r.window, 15*time.Second)
	if _, err := short.phase(ctx, w, alone, "warm", nil); err != nil {
		return err
	}
	dead, topic := trial.NewLedger(), w.Topic+"-dead"
	heal, err := w.Broker.BreakTopic(ctx, topic, trial.Fault(r.fault))
	if err != nil {
		return err
	}
	if err := r.dueAtOnce(ctx, w, topic, dead); err != nil {
		return err
	}
	beside, err := r.phase(ctx, w, alone, "beside", &trial.Steady{Topic: topic, Rate: r.rate / 10, IDs: "dead"}, dead)
	if err != nil {
		return err
	}
	if err := r.quiet(ctx, w); err != nil {
		return err
	}
	short.window = min(r.window, time.Minute) // Nothing happens here but the load.
	parked, err := short.phase(ctx, w, alone, "parked", nil)
	if err != nil {
		return err
	}
	totals, err := w.Totals(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("routes   %-8s %s: %d sent to slots, %d dead letters; beside it p99 %.2f times that alone, Redis %.2f; once parked p99 %.2f, Redis %.2f\n",
		r.broker, r.fault, totals.Counters["parked"], totals.Dead,
		ratio(beside.report.P99, beside.alone.P99), ratio(beside.redis, beside.redisAlone),
		ratio(parked.report.P99, parked.alone.P99), ratio(parked.redis, parked.redisAlone))
	healed, err := r.heal(ctx, w, topic, dead, heal)
	if err != nil {
		return err
	}
	wrong := beside.wrong() + parked.wrong() + healed.Wrong()
	if wrong > 0 || totals.Dead > 0 {
		return fmt.Errorf("routes: broken promises: %d, dead letters: %d", wrong, totals.Dead)
	}
	return nil
}

func ratio(a, b time.Duration) float64 { return a.Seconds() / b.Seconds() }

// phase is a steady load to a topic of its own, and the same in another world, and
// what they cost.
type phase struct {
	report, alone     trial.Report
	redis, redisAlone time.Duration // processor time
}

func (p *phase) wrong() int { return p.report.Wrong() + p.alone.Wrong() }

func (r run) phase(ctx context.Context, w, alone *trial.World, name string, other *trial.Steady, otherLedger ...*trial.Ledger) (p phase, err error) {
	group, inside := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		p.report, p.redis, err = r.watched(inside, w, name, other, otherLedger...)
		return err
	})
	group.Go(func() (err error) {
		p.alone, p.redisAlone, err = r.watched(inside, alone, "alone", nil)
		return err
	})
	return p, group.Wait()
}

// watched runs a load, and measures what it costs.
func (r run) watched(
	ctx context.Context, w *trial.World, name string, other *trial.Steady, otherLedger ...*trial.Ledger,
) (report trial.Report, redis time.Duration, err error) {
	before, err := look(ctx, w)
	if err != nil {
		return report, 0, err
	}
	topic := fmt.Sprintf("%s-%s-%d", w.Topic, name, time.Now().UnixMilli())
	if report, err = r.healthy(ctx, w, topic, other, otherLedger...); err != nil {
		return report, 0, err
	}
	after, err := look(ctx, w)
	redis = after.redis - before.redis
	fmt.Printf("routes   %-8s %-7s %s; Redis %.1f %% of a core\n",
		r.broker, name, report, 100*redis.Seconds()/after.at.Sub(before.at).Seconds())
	return report, redis, err
}

// quiet waits until next to nothing is on its way to its slot any more.
func (r run) quiet(ctx context.Context, w *trial.World) error {
	before := int64(-1)
	for {
		totals, err := w.Totals(ctx)
		if err != nil {
			return err
		}
		if now := totals.Counters["parked"]; now-before < 100 {
			return nil
		}
		before = totals.Counters["parked"]
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(2 * time.Second):
		}
	}
}

// healthy runs a steady load to a topic, and beside it another to a dead one,
// for the window.
func (r run) healthy(ctx context.Context, w *trial.World, topic string, other *trial.Steady, otherLedger ...*trial.Ledger) (trial.Report, error) {
	if err := w.Broker.MakeTopic(ctx, topic); err != nil {
		return trial.Report{}, err
	}
	ledger := trial.NewLedger()
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	loading, end := context.WithTimeout(ctx, r.window)
	defer end()
	var group, consumer errgroup.Group
	consumer.Go(func() error { return w.Broker.Consume(consuming, topic, ledger.Got) })
	load := func(s trial.Steady, to *trial.Ledger) {
		s.Client, s.Lead, s.Spread, s.BodySize, s.Keys, s.Seed = w.Client, 300*time.Millisecond, time.Second, 256, 100, r.seed
		group.Go(func() error { return s.Run(loading, to) })
	}
	load(trial.Steady{Topic: topic, Rate: r.rate - r.rate/10, IDs: topic}, ledger)
	if other != nil {
		load(*other, otherLedger[0])
	}
	err := group.Wait()
	ledger.Await(time.Minute, time.Second)
	stop()
	return ledger.Report(), errors.Join(err, consumer.Wait())
}

// dueAtOnce schedules messages that are due now.
func (r run) dueAtOnce(ctx context.Context, w *trial.World, topic string, ledger *trial.Ledger) error {
	count := max(r.count, 0)
	if count == 0 {
		count = 6000
	}
	due := delay.At(time.Now())
	for start := 0; start < count; start += 500 {
		requests := make([]delay.Request, min(500, count-start))
		for i := range requests {
			n := start + i
			requests[i] = delay.Request{When: due, Message: delay.Message{
				ID: fmt.Sprintf("backlog-%06d", n), Key: fmt.Sprintf("backlog-%d", n%50), Topic: topic, Body: make([]byte, 256),
			}}
		}
		results, err := w.Client.ScheduleBatch(ctx, requests)
		if err != nil {
			return err
		}
		for i, result := range results {
			if result.Err != nil {
				return result.Err
			}
			ledger.Scheduled(requests[i].Message, result)
		}
	}
	return nil
}

// heal mends the topic, and waits for what was parked.
func (r run) heal(
	ctx context.Context, w *trial.World, topic string, ledger *trial.Ledger, mend func(context.Context) error,
) (trial.Report, error) {
	if err := mend(ctx); err != nil {
		return trial.Report{}, err
	}
	begin := time.Now()
	var first time.Time
	consuming, stop := context.WithCancel(ctx)
	defer stop()
	var consumer errgroup.Group
	consumer.Go(func() error {
		return w.Broker.Consume(consuming, topic, func(record trial.Record) {
			if first.IsZero() {
				first = time.Now()
			}
			ledger.Got(record)
		})
	})
	ledger.Await(2*time.Minute, 2*time.Second)
	all := time.Since(begin) - 2*time.Second
	stop()
	err := consumer.Wait()
	report := ledger.Report()
	fmt.Printf("routes   %-8s healed  first after %s, all within %s; %s\n",
		r.broker, first.Sub(begin).Round(time.Millisecond), all.Round(100*time.Millisecond), report)
	return report, err
}
