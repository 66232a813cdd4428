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
	// screenEvery is how often rows beyond the horizon are looked at, and screenRows how
	// many at the most each time.
	screenEvery = time.Second
	screenRows  = 5000
	// screenBehind is how many times a number has been there before it is looked at:
	// transactions commit out of order.
	screenBehind = 10
)

// screen looks through the rows beyond the horizon, and refuses what their queue's sink
// could never take: its producer learns of it today, and not when the message is nearly
// due. A due time after the year 9999 is refused here, since no horizon would ever
// reach it. It reads each row once, from the first one on, in the order of their numbers. A
// row that is committed later than those after it may be passed over, and is refused when
// it is loaded, as everything else that is wrong with one.
type screen struct {
	*Relay
	after int64   // the last number that was looked at
	seen  []int64 // the highest numbers, the oldest first
}

// run screens until ctx ends, while that is this instance's. What fails is tried again
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

// step looks at the next rows that have been there for a while.
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
		if q, ok := s.queues[t.Queue]; ok && checkFar(q.Sink, t.Topic, t.DueMs) != nil {
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

// checkFar reports what is looked for in a row beyond the horizon.
func checkFar(sink message.SinkType, topic string, dueMs int64) error {
	if err := message.CheckTopic(sink, topic); err != nil {
		return err
	}
	return table.CheckDue(dueMs)
}

// refuse refuses those of the rows that nobody works on.
func (s *screen) refuse(ctx context.Context, queue string, numbers []int64) error {
	b := &batch{verdicts: newVerdicts(), relay: s.Relay, queue: s.queues[queue]}
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
