package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/test/flow"
)

// schedule is a way to schedule messages.
type schedule func(context.Context, []delay.Request) ([]delay.Result, error)

// producing is a steady load in batches of ten, or of one where it is small.
type producing struct {
	by           schedule
	ids, topic   string
	ledger       *flow.Ledger
	rate         int
	window       time.Duration
	lead, spread time.Duration // a message is due after lead at the least, lead + spread at the most
}

// run keeps the rate for the window; who has fallen behind catches up.
func (p producing) run(ctx context.Context) error {
	const producers = 4
	batch := 10
	if p.rate < 10*batch {
		batch = 1
	}
	every := time.Second * time.Duration(producers*batch) / time.Duration(p.rate)
	group, ctx := errgroup.WithContext(ctx)
	for n := range producers {
		group.Go(func() error {
			begin := time.Now().Add(every * time.Duration(n) / producers)
			for i := range int(p.window / every) {
				if err := pause(ctx, time.Until(begin.Add(time.Duration(i)*every))); err != nil {
					return err
				}
				if err := p.schedule(ctx, fmt.Sprintf("%s-%d-%06d", p.ids, n, i), batch); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func (p producing) schedule(ctx context.Context, name string, count int) error {
	requests := make([]delay.Request, count)
	for i := range requests {
		due := time.Now().Add(p.lead + rand.N(p.spread)) //nolint:gosec // any will do
		requests[i] = delay.Request{
			Message: delay.Message{ID: fmt.Sprintf("%s-%d", name, i), Topic: p.topic, Body: make([]byte, 256)}, When: delay.At(due),
		}
	}
	results, err := p.by(ctx, requests)
	if err != nil {
		return err
	}
	for i, result := range results {
		p.ledger.Scheduled(requests[i].Message, result)
	}
	return nil
}
