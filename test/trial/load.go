package trial

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/delay"
)

// Load is a set of messages with random due times, of which one in ten is
// cancelled and one in ten rescheduled before it is due.
type Load struct {
	Client *delay.Client
	Topic  string
	Count  int
	// Lead is the time before the first one is due, Window the time in which all are due.
	Lead, Window time.Duration
	// BodySize in bytes; Keys is how many keys there are, 0 for none.
	BodySize, Keys int
	Seed           uint64
	// IDs is the prefix of the messages' ids; loads of one ledger need different ones.
	IDs string
}

// batchSize is how many messages a producer schedules in a call.
const batchSize = 200

// Run schedules all messages, then cancels and reschedules; every answer goes
// into the ledger.
func (load Load) Run(ctx context.Context, ledger *Ledger) error {
	random := rand.New(rand.NewPCG(load.Seed, 1)) //nolint:gosec // a seed makes the run repeatable
	start := time.Now().Add(load.Lead)
	due := func() time.Time { return start.Add(time.Duration(random.Int64N(int64(load.Window)))) }
	requests := make([]delay.Request, load.Count)
	moved := make(map[int]time.Time)
	for i := range requests {
		body := make([]byte, load.BodySize)
		for j := range body {
			body[j] = byte(random.Uint32())
		}
		m := delay.Message{
			ID: fmt.Sprintf("%sm-%08d", load.IDs, i), Topic: load.Topic, Body: body, Headers: map[string]string{"n": fmt.Sprint(i)},
		}
		if load.Keys > 0 {
			m.Key = fmt.Sprintf("%skey-%d", load.IDs, random.IntN(load.Keys))
		}
		requests[i] = delay.Request{Message: m, When: delay.At(due())}
		if i%10 == 2 {
			moved[i] = due()
		}
	}
	var group errgroup.Group
	group.SetLimit(8)
	for chunk := range slices.Chunk(requests, batchSize) {
		group.Go(func() error { return schedule(ctx, load.Client, chunk, ledger) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i := range requests {
		m := requests[i].Message
		ref := delay.Ref{ID: m.ID, Key: m.Key}
		switch i % 10 {
		case 1:
			group.Go(func() error { return Cancel(ctx, load.Client, ref, ledger, nil) })
		case 2:
			group.Go(func() error { return Reschedule(ctx, load.Client, ref, moved[i], ledger, nil) })
		}
	}
	return group.Wait()
}

func schedule(ctx context.Context, client *delay.Client, requests []delay.Request, ledger *Ledger) error {
	results, err := client.ScheduleBatch(ctx, requests)
	if err != nil {
		return err
	}
	for i, result := range results {
		if result.Err != nil {
			return fmt.Errorf("schedule %s: %w", result.Ref.ID, result.Err)
		}
		ledger.Scheduled(requests[i].Message, result)
	}
	return nil
}

// Cancel cancels, and records what the answer promises.
func Cancel(ctx context.Context, client *delay.Client, ref delay.Ref, ledger *Ledger, calls *Calls) error {
	err := calls.Time("cancel", func() error { return client.Cancel(ctx, ref) })
	return ledger.CancelAnswered(ref.ID, err)
}

// CancelAnswered records what the answer to a cancel promises. Its error is an
// answer that promises nothing.
func (l *Ledger) CancelAnswered(id string, err error) error {
	switch {
	case err == nil:
		l.Cancelled(id)
	case errors.Is(err, delay.ErrTooLate), errors.Is(err, delay.ErrNotFound):
		// It is or was published: it must arrive.
	case errors.Is(err, delay.ErrMaybePublished), errors.Is(err, delay.ErrUnknown), errors.Is(err, delay.ErrNotDurable):
		l.Maybe(id)
	default:
		return fmt.Errorf("cancel %s: %w", id, err)
	}
	return nil
}

// Reschedule reschedules, and records what the answer promises.
func Reschedule(
	ctx context.Context, client *delay.Client, ref delay.Ref, due time.Time, ledger *Ledger, calls *Calls,
) error {
	err := calls.Time("reschedule", func() error { return client.Reschedule(ctx, ref, delay.At(due)) })
	return ledger.RescheduleAnswered(ref.ID, due, err)
}

// RescheduleAnswered records what the answer to a reschedule promises. Its error
// is an answer that promises nothing.
func (l *Ledger) RescheduleAnswered(id string, due time.Time, err error) error {
	ms := time.UnixMilli(due.UnixMilli())
	if ms.Before(due) {
		ms = ms.Add(time.Millisecond)
	}
	switch {
	case err == nil:
		l.Rescheduled(id, ms)
	case errors.Is(err, delay.ErrTooLate), errors.Is(err, delay.ErrNotFound):
	case errors.Is(err, delay.ErrMaybePublished), errors.Is(err, delay.ErrUnknown), errors.Is(err, delay.ErrNotDurable):
		l.Maybe(id, ms)
	default:
		return fmt.Errorf("reschedule %s: %w", id, err)
	}
	return nil
}

// Race schedules count messages and sends a cancel, or a reschedule, for each
// within 50 ms of its due time.
func Race(ctx context.Context, load Load, cancel bool, ledger *Ledger, calls *Calls) error {
	random := rand.New(rand.NewPCG(load.Seed, 2)) //nolint:gosec // a seed makes the run repeatable
	start := time.Now().Add(load.Lead)
	type shot struct {
		at  time.Time
		ref delay.Ref
		due time.Time
	}
	shots := make([]shot, load.Count)
	requests := make([]delay.Request, load.Count)
	for i := range shots {
		due := start.Add(time.Duration(random.Int64N(int64(load.Window))))
		off := time.Duration(random.Int64N(int64(100*time.Millisecond))) - 50*time.Millisecond
		ref := delay.Ref{ID: fmt.Sprintf("%sr-%08d", load.IDs, i)}
		shots[i] = shot{at: due.Add(off), ref: ref, due: due.Add(off + time.Second)}
		requests[i] = delay.Request{
			Message: delay.Message{ID: ref.ID, Topic: load.Topic, Body: []byte("race")}, When: delay.At(due),
		}
	}
	for chunk := range slices.Chunk(requests, batchSize) {
		if err := schedule(ctx, load.Client, chunk, ledger); err != nil {
			return err
		}
	}
	slices.SortFunc(shots, func(a, b shot) int { return a.at.Compare(b.at) })
	var group errgroup.Group
	group.SetLimit(64)
	for _, s := range shots {
		time.Sleep(time.Until(s.at)) //nolint:forbidigo // the load's own timetable
		group.Go(func() error {
			if cancel {
				return Cancel(ctx, load.Client, s.ref, ledger, calls)
			}
			return Reschedule(ctx, load.Client, s.ref, s.due, ledger, calls)
		})
	}
	return group.Wait()
}
