package retry

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/turns"
)

// # How the order of a key is kept
//
// A message that fails enters the record of its key (package turns), and leaves it when it was handled or is a dead letter.
// While the record has any, later messages of the key enter it behind them and are scheduled, too, so that they come back
// behind them; only the first may be handled. So nothing depends on the order in which repetitions come back: one
// that comes too early is held back again.
//
// A message is scheduled before the record says so. So what holds others back always comes: a consumer that dies in between
// leaves a delivery too many, and never one too few. docs/model/Turns.tla has the states.

const (
	heldFirst = 100 * time.Millisecond // the shortest and the longest time for which a message is held back
	heldLast  = time.Minute            // whose turn is overdue
	stayLen   = 10
)

// turnTaker is a client that knows the turns: [delay.Client], and what embeds one.
type turnTaker interface{ Turns() *turns.Turns }

// delivery is a message as the record knows it. Number is how often it was handed over in its stay, 0 for the broker's own.
type delivery struct {
	origin, stay string
	number       int
}

func deliveryOf(origin string, m *Message) delivery {
	d := delivery{origin: origin}
	stay, number, _ := strings.Cut(m.Headers[HeaderTurn], "/")
	if n, err := strconv.Atoi(number); err == nil && n > 0 {
		d.stay, d.number = stay, n
	}
	return d
}

// step is what is to be done with a delivery.
type step int

const (
	toHandle step = iota
	toHold        // others of its key are before it
	toDrop        // it was handed over already: its next delivery is to come
)

// outstanding are those of a record that still hold others back.
func outstanding(r *turns.Record, hold time.Duration) []turns.Waiting {
	return slices.DeleteFunc(slices.Clone(r.Waiting), func(w turns.Waiting) bool {
		return !time.UnixMilli(w.DueMs).Add(hold).After(r.At)
	})
}

func placeOf(waiting []turns.Waiting, origin string) int {
	return slices.IndexFunc(waiting, func(w turns.Waiting) bool { return w.Origin == origin })
}

// judge says what is to be done with a delivery.
func judge(waiting []turns.Waiting, d delivery) step {
	i := placeOf(waiting, d.origin)
	switch {
	case i < 0 && len(waiting) == 0:
		return toHandle
	case i < 0:
		return toHold
	case d.number < waiting[i].Number, d.stay != waiting[i].Stay:
		return toDrop
	case i == 0:
		return toHandle
	default:
		return toHold
	}
}

// heldFor is how long a delivery is held back: until the one before it has come or, if that is overdue, half as long
// as the first one is.
func heldFor(waiting []turns.Waiting, d delivery, now time.Time) time.Duration {
	before := waiting[len(waiting)-1]
	if i := placeOf(waiting, d.origin); i > 0 {
		before = waiting[i-1]
	}
	if left := time.UnixMilli(before.DueMs).Sub(now); left > 0 {
		return left + time.Millisecond
	}
	return min(max(now.Sub(time.UnixMilli(waiting[0].DueMs))/2, heldFirst), heldLast)
}

// entered are the outstanding messages with the next delivery of one.
func entered(waiting []turns.Waiting, next turns.Waiting) []turns.Waiting {
	if i := placeOf(waiting, next.Origin); i >= 0 {
		waiting[i] = next
		return waiting
	}
	return append(waiting, next)
}

// inTurn handles a message in its turn, or has it delivered again.
func (r *Retrier) inTurn(ctx context.Context, m Message, handle func(context.Context, Message) error) error {
	origin, err := originOf(&m)
	if err != nil {
		return err
	}
	d := deliveryOf(origin, &m)
	record, err := r.turns.Get(ctx, m.Topic, m.Key)
	if err != nil {
		return fmt.Errorf("retry: %w", err)
	}
	waiting := outstanding(&record, r.policy.Hold)
	switch judge(waiting, d) {
	case toDrop:
		return r.confirm(ctx, &m, record)
	case toHold:
		return r.handOver(ctx, &m, d, record, r.again(&m, origin, m.Attempt(), nil), heldFor(waiting, d, record.At))
	case toHandle:
	}
	cause := handle(ctx, m)
	if cause == nil {
		return r.leave(ctx, &m, d, record)
	}
	if m.Attempt() >= r.policy.Limit {
		if _, err := r.schedule(ctx, r.dead(&m, origin, cause), delay.After(0)); err != nil {
			return err
		}
		return r.leave(ctx, &m, d, record)
	}
	return r.handOver(ctx, &m, d, record, r.again(&m, origin, m.Attempt()+1, cause), r.policy.Delay(m.Attempt()+1))
}

// handOver schedules the next delivery of a message and enters it in the record.
func (r *Retrier) handOver(ctx context.Context, m *Message, d delivery, record turns.Record, again delay.Message, in time.Duration) error {
	waiting := outstanding(&record, r.policy.Hold)
	next := turns.Waiting{Origin: d.origin, Stay: rand.Text()[:stayLen], Number: d.number + 1}
	if i := placeOf(waiting, d.origin); i >= 0 {
		next.Stay = waiting[i].Stay
	} else if len(waiting) >= turns.Most {
		return fmt.Errorf("%w: %d", ErrCrowded, turns.Most)
	}
	turn := fmt.Sprint(next.Stay, "/", next.Number)
	again.ID, again.Headers[HeaderTurn] = fmt.Sprint(d.origin, "/turn/", turn), turn
	result, err := r.schedule(ctx, again, delay.After(in))
	if err != nil {
		return err
	}
	next.DueMs = record.At.Add(in).UnixMilli()
	if !result.DueAt.IsZero() {
		next.DueMs = result.DueAt.UnixMilli()
	}
	return r.change(ctx, m, record, func(waiting []turns.Waiting) ([]turns.Waiting, bool) {
		if judge(waiting, d) == toDrop { // Somebody has handed it over meanwhile.
			return waiting, r.turns.IsDurable()
		}
		return entered(waiting, next), true
	})
}

// confirm makes sure that a record is durable by which a delivery is dropped: who has put it may have died before it was.
func (r *Retrier) confirm(ctx context.Context, m *Message, record turns.Record) error {
	return r.change(ctx, m, record, func(waiting []turns.Waiting) ([]turns.Waiting, bool) { return waiting, r.turns.IsDurable() })
}

// leave takes a message out of the record. After a repetition that is not in it there is a new record, too: one that a
// consumer has sent before it died must not come after that.
func (r *Retrier) leave(ctx context.Context, m *Message, d delivery, record turns.Record) error {
	return r.change(ctx, m, record, func(waiting []turns.Waiting) ([]turns.Waiting, bool) {
		i := placeOf(waiting, d.origin)
		if i < 0 {
			return waiting, d.number > 0
		}
		return slices.Delete(waiting, i, i+1), true
	})
}

// change changes the record, as often as somebody else does meanwhile; to says how, and whether it is needed.
func (r *Retrier) change(ctx context.Context, m *Message, record turns.Record, to func([]turns.Waiting) ([]turns.Waiting, bool)) error {
	for {
		waiting, isNeeded := to(outstanding(&record, r.policy.Hold))
		if !isNeeded {
			return nil
		}
		var last int64
		for _, w := range waiting {
			last = max(last, w.DueMs)
		}
		kept := time.UnixMilli(last).Add(r.policy.Hold).Sub(record.At)
		there, err := r.turns.Put(ctx, m.Topic, m.Key, record, waiting, kept)
		if !errors.Is(err, turns.ErrMeanwhile) {
			if err != nil {
				return fmt.Errorf("retry: %w", err)
			}
			return nil
		}
		record = there
	}
}
