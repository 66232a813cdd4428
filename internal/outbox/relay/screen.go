package relay

import (
	"context"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

const (
	// screenEvery is the interval between screenings of rows beyond the horizon, screenRows the
	// most rows of one.
	screenEvery = time.Second
	screenRows  = 5000
	// screenBehind is how many screenings a number must be old to be read, since
	// transactions commit out of order.
	screenBehind = 10
)

// screen reads the rows beyond the horizon, and refuses those that their queue's sink could never
// take, so that the producer learns of it today and not when the message is nearly due. Due times
// after the year 9999 are refused, too, since no horizon ever reaches them. It reads each row
// once, by number. It may miss a row that commits later than those after it; that row, and any
// other fault, is refused at loading.
type screen struct {
	*Relay
	after int64   // the last number that was read
	seen  []int64 // the highest numbers, the oldest first
}

// run screens until ctx ends, while this instance is the one to do so. A failed step is repeated
// next time.
func (s *screen) run(ctx context.Context) error {
	for wait.Sleep(ctx, s.config.screen) {
		if s.config.Mine != nil && !s.config.Mine() {
			s.seen = nil
			continue
		}
		if err := s.step(ctx); err != nil && ctx.Err() == nil {
			s.log.DebugContext(ctx, "outbox rows are not screened", "err", err)
		}
	}
	return nil
}

// step reads the next rows that have been there for a while.
func (s *screen) step(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	last, err := s.db.Pending().Last(ctx)
	if err != nil {
		return err
	}
	if s.seen = append(s.seen, last); len(s.seen) <= screenBehind {
		return nil
	}
	to := s.seen[0]
	s.seen = slices.Delete(s.seen, 0, 1)
	if s.after >= to {
		return nil
	}
	topics, read, err := s.db.Pending().Topics(ctx, s.after, to, s.config.Horizon, screenRows)
	if err != nil {
		return err
	}
	bad := map[string][]int64{}
	for _, t := range topics {
		if q := s.served.Load().queues[t.Queue]; q != nil && checkFar(q.Sink, t.Topic, t.DueMs) != nil {
			bad[t.Queue] = append(bad[t.Queue], t.Number)
		}
	}
	for queue, numbers := range bad {
		for chunk := range slices.Chunk(numbers, table.BatchRows) {
			if err := s.refuse(ctx, queue, chunk); err != nil {
				return err
			}
		}
	}
	s.after = read
	return nil
}

// checkFar returns why a row beyond the horizon can never be published.
func checkFar(sink message.SinkType, topic string, dueMs int64) error {
	if err := message.CheckTopic(sink, topic); err != nil {
		return err
	}
	return table.CheckDue(dueMs)
}

// refuse refuses the rows that no other transaction holds.
func (s *screen) refuse(ctx context.Context, queue string, numbers []int64) error {
	b := &batch{verdicts: newVerdicts(), relay: s.Relay, queue: s.served.Load().queues[queue]}
	err := s.db.Within(ctx, func(t *table.Tx) error {
		rows, err := t.LockMessages(ctx, numbers)
		if err != nil {
			return err
		}
		for _, r := range rows {
			if err := checkFar(b.queue.Sink, r.Content.Topic, r.DueMs); err != nil {
				b.refuse(r, err)
			}
		}
		return t.Write(ctx, b.updates)
	})
	if err == nil {
		b.tell(ctx)
	}
	return err
}
