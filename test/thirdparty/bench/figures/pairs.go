package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/test/trial"
)

// side is one of two builds that take turns.
type side struct {
	name     string
	bridge   *trial.Bridge
	rates    []float64
	consumed []float64 // µs of CPU a message
}

// pairsFigure drains with this build and with another commit's, by turns before the same servers, so
// that what the machine does meanwhile touches both.
func pairsFigure(ctx context.Context, r run) error {
	w, err := r.world(ctx, trial.Options{})
	if err != nil {
		return err
	}
	defer w.Close()
	binary, err := trial.BuildCommit(ctx, r.against)
	if err != nil {
		return err
	}
	earlier, err := w.BridgeOf(ctx, binary)
	if err == nil {
		err = w.Bridge.Stop()
	}
	if err != nil {
		return err
	}
	now, before := &side{name: "this tree", bridge: w.Bridge}, &side{name: r.against, bridge: earlier}
	for n := range r.repeat + 1 {
		turns := []*side{now, before}
		if n%2 == 1 {
			turns = []*side{before, now}
		}
		for _, s := range turns {
			if err := s.drain(ctx, w, cmp.Or(r.count, 200_000), n); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
	}
	for _, s := range []*side{now, before} {
		fmt.Printf("pairs  %-8s %-12s %8.0f/s, %5.1f µs CPU of the bridge a message; each %.0f\n", r.broker, s.name, median(s.rates), median(s.consumed), s.rates)
	}
	ratios, costs := make([]float64, r.repeat), make([]float64, r.repeat)
	for i := range ratios {
		ratios[i], costs[i] = now.rates[i]/before.rates[i], now.consumed[i]/before.consumed[i]
	}
	fmt.Printf("pairs  %-8s rate %.2f of %s's, CPU %.2f; pair by pair %.2f\n", r.broker, median(ratios), r.against, median(costs), ratios)
	return nil
}

// drain measures one; the first one of each side only warms up.
func (s *side) drain(ctx context.Context, w *trial.World, count, n int) error {
	if err := s.bridge.Start(ctx); err != nil {
		return err
	}
	due, err := fillAhead(ctx, w, filling{count: count, ids: fmt.Sprint(s.name, n)}, 20_000)
	if err := errors.Join(err, trial.Sleep(ctx, time.Until(due)-time.Second)); err != nil {
		return err
	}
	idle := s.bridge.CPU()
	if err := trial.Sleep(ctx, time.Until(due)); err != nil {
		return err
	}
	end, err := w.Drained(ctx)
	if err != nil {
		return err
	}
	if n > 0 {
		s.rates = append(s.rates, rate(count, end.Sub(due)))
		s.consumed = append(s.consumed, float64((s.bridge.CPU()-idle).Microseconds())/float64(count))
	}
	return s.bridge.Stop()
}
