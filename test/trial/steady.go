package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
)

// Steady is a producer with a steady rate. Due times are given as delays, so
// that by Redis' clock each message was accepted Lead before it is due, however
// late the call was: then their order at the broker is promised.
type Steady struct {
	Client *delay.Client
	// Schedule is another way to schedule than the client's.
	Schedule func(context.Context, []delay.Request) ([]delay.Result, error)
	Topic    string
	// Rate is in messages a second.
	Rate int
	// Lead is the least delay of a message, Spread what is added at random.
	Lead, Spread   time.Duration
	BodySize, Keys int
	Seed           uint64
	// IDs is the prefix of the messages' ids and keys.
	IDs string
	// Every is how often it schedules a batch, by default 20 ms.
	Every time.Duration
	// Parallel is how many calls may be under way, by default 16.
	Parallel int
	// Outages allows answers that say that nothing was done.
	Outages bool
	// Calls notes how long calls took, and what was answered; it may be nil.
	Calls *Calls
	// Accepted is called with what was accepted; it may be nil. It must not block.
	Accepted func(refs []delay.Ref)
}

// Run schedules until ctx ends, and finishes the calls that are under way.
func (s Steady) Run(ctx context.Context, ledger *Ledger) error {
	random := rand.New(rand.NewPCG(s.Seed, 3)) //nolint:gosec // a seed makes the run repeatable
	calls := context.WithoutCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(cmp.Or(s.Parallel, 16))
	begin := time.Now()
	tick := time.NewTicker(cmp.Or(s.Every, 20*time.Millisecond))
	defer tick.Stop()
	for sent := 0; ; {
		select {
		case <-ctx.Done():
			return group.Wait()
		case <-tick.C:
		}
		for want := int(time.Since(begin).Seconds() * float64(s.Rate)); sent < want && ctx.Err() == nil; {
			requests := s.next(random, sent, min(batchSize, want-sent))
			sent += len(requests)
			group.Go(func() error { return s.schedule(calls, requests, ledger) })
		}
	}
}

func (s Steady) next(random *rand.Rand, from, count int) []delay.Request {
	requests := make([]delay.Request, count)
	for i := range requests {
		body := make([]byte, s.BodySize)
		for j := range body {
			body[j] = byte(random.Uint32())
		}
		wait := s.Lead + time.Duration(random.Int64N(int64(s.Spread)+1))
		m := delay.Message{ID: fmt.Sprintf("%ss-%08d", s.IDs, from+i), Topic: s.Topic, Body: body}
		if s.Keys > 0 {
			m.Key = fmt.Sprintf("%skey-%d", s.IDs, random.IntN(s.Keys))
		}
		requests[i] = delay.Request{Message: m, When: delay.After(wait)}
	}
	return requests
}

func (s Steady) schedule(ctx context.Context, requests []delay.Request, ledger *Ledger) error {
	var (
		results []delay.Result
		begin   = time.Now().Truncate(time.Millisecond)
	)
	schedule := s.Schedule
	if schedule == nil {
		schedule = s.Client.ScheduleBatch
	}
	err := s.Calls.Time("schedule", func() (err error) {
		results, err = schedule(ctx, requests)
		for _, result := range results {
			err = errors.Join(err, result.Err)
		}
		return err
	})
	if len(results) != len(requests) {
		return fmt.Errorf("schedule a batch: %w", err)
	}
	var refs []delay.Ref
	for i, result := range results {
		switch {
		case result.Err == nil, errors.Is(result.Err, delay.ErrNotDurable):
			ledger.Scheduled(requests[i].Message, result)
			if s.Outages {
				ledger.Since(result.Ref.ID, begin.Add(s.Lead))
			}
			if result.Err != nil {
				ledger.Maybe(result.Ref.ID)
			}
			refs = append(refs, result.Ref)
		case errors.Is(result.Err, delay.ErrUnknown):
			ledger.Unsure(requests[i].Message, result.Ref.ID)
		case errors.Is(result.Err, delay.ErrUnavailable) && s.Outages:
			ledger.Refused(requests[i].Message, result.Ref.ID)
		default:
			return fmt.Errorf("schedule %s: %w", result.Ref.ID, result.Err)
		}
	}
	if s.Accepted != nil {
		s.Accepted(refs)
	}
	return nil
}
