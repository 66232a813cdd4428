package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/delay"
)

// sleeper is a producer that schedules messages for much later, and then does
// nothing for so long that the queue's layout changes without it.
type sleeper struct {
	client *delay.Client
	// messages are due far beyond the run; see wake and finish.
	messages []delay.Message
}

// sleeperMessages is divided by three.
const sleeperMessages = 300

func (g *growth) newSleeper(ctx context.Context, n int) (*sleeper, error) {
	client, err := g.client()
	if err != nil {
		return nil, err
	}
	s := &sleeper{client: client}
	requests := make([]delay.Request, sleeperMessages)
	for i := range requests {
		m := delay.Message{ID: fmt.Sprintf("z%d-%04d", n, i), Topic: g.w.Topic, Body: []byte("sleeper")}
		if i%2 == 0 {
			m.Key = fmt.Sprintf("z-key-%d", i)
		}
		s.messages = append(s.messages, m)
		requests[i] = delay.Request{Message: m, When: delay.After(time.Hour)}
	}
	results, err := client.ScheduleBatch(ctx, requests)
	for i, result := range results {
		err = errors.Join(err, result.Err)
		g.w.Ledger.Scheduled(requests[i].Message, result)
	}
	return s, err
}

// wake cancels a third of the messages and reschedules another, with the layout
// that the producer knew when it fell asleep. Nobody has touched them, so that
// each answer must be done.
func (s *sleeper) wake(ctx context.Context, g *growth) error {
	for i, m := range s.messages {
		ref := delay.Ref{ID: m.ID, Key: m.Key}
		var err error
		switch i % 3 {
		case 0:
			err = g.calls.Time("cancel, asleep", func() error { return s.client.Cancel(ctx, ref) })
			err = errors.Join(err, g.w.Ledger.CancelAnswered(m.ID, err))
		case 1:
			due := time.Now().Add(2 * time.Second)
			err = g.calls.Time("reschedule, asleep", func() error { return s.client.Reschedule(ctx, ref, delay.At(due)) })
			err = errors.Join(err, g.w.Ledger.RescheduleAnswered(m.ID, due, err))
		case 2:
			err = s.again(ctx, g, m)
		}
		if err != nil {
			return fmt.Errorf("a producer with an old layout: %s: %w", m.ID, err)
		}
	}
	return nil
}

// again schedules a message that waits already; it must be told so.
func (s *sleeper) again(ctx context.Context, g *growth, m delay.Message) error {
	err := g.calls.Time("schedule again, asleep", func() error {
		_, err := s.client.Schedule(ctx, m, delay.After(time.Hour))
		return err
	})
	if !errors.Is(err, delay.ErrDuplicate) {
		return fmt.Errorf("schedule again: answer %w, want %w", err, delay.ErrDuplicate)
	}
	return nil
}

// finish makes the last third due, by way of a producer that knows no layout yet.
func (s *sleeper) finish(ctx context.Context, g *growth) error {
	client, err := g.client()
	if err != nil {
		return err
	}
	for i := 2; i < len(s.messages); i += 3 {
		m, due := s.messages[i], time.Now()
		err := client.Reschedule(ctx, delay.Ref{ID: m.ID, Key: m.Key}, delay.At(due))
		if err := errors.Join(err, g.w.Ledger.RescheduleAnswered(m.ID, due, err)); err != nil {
			return fmt.Errorf("finish %s: %w", m.ID, err)
		}
	}
	return nil
}
