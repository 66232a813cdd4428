package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// Found is a message as it is now.
type Found struct {
	message.Message
	// Code is Waiting, InFlight or Dead.
	Code store.Code
	// Reason is the dead letter's, as DiedAt, which is zero where it is not known.
	Reason string
	DiedAt time.Time
	// MaybePublished is set where a copy may be at the broker already.
	MaybePublished bool
	// Parked is the route that it is parked for; nil where it is not parked, and in a listing.
	Parked *message.ParkedRoute
	// End is what became of the message, where none is found, else of an earlier one of
	// that identity; nil where the queue's history tells of none, and in a listing.
	End *message.End
	// Err is set where the stored message cannot be decoded.
	Err error
}

// Get finds a message by its identity; ok is false where there is none, and found tells then
// what became of it.
func Get(ctx context.Context, queue *store.Queue, id, key string) (found Found, ok bool, err error) {
	err = queue.Repeat(ctx, func(layout *store.Layout) error {
		var last *message.End
		for _, home := range layout.Homes(id, key) {
			found, ok, err = getIn(ctx, queue, layout, home, id, key)
			found.End = laterEnd(found.End, last)
			if ok || err != nil {
				return err
			}
			last = found.End
		}
		if last == nil {
			found.End, err = endElsewhere(ctx, queue, layout, id, key)
		}
		return err
	})
	if !ok && found.End != nil && found.End.Kind == message.EndDead {
		found.End = nil // It is dead no more: whoever ended it did not know yet that the queue has a history.
	}
	return found, ok, err
}

// getIn looks into one home of the message.
func getIn(ctx context.Context, queue *store.Queue, layout *store.Layout, home int, id, key string) (found Found, ok bool, err error) {
	k := layout.Keys()[home]
	names, _ := layout.WithHistory(k, []string{k.Due, k.Msg, k.Claims, k.Attempts, k.DeadMsg, k.Meta, k.Dead, k.Routes})
	r, err := askShard(ctx, queue, layout, home, scripts.Get, names, message.Member(id, key))
	if err != nil {
		return found, false, fmt.Errorf("get: %w", err)
	}
	if code := store.Code(r.Int(2)); code != store.NotFound {
		found, ok = parseFound(queue.Name(), r, code, id, key), true
	}
	found.End = endOf(layout, r.Text(7), r.Int(8), r.Int(1))
	return found, ok, r.Err
}

func parseFound(queue string, r *scripts.Reply, code store.Code, id, key string) Found {
	if code == store.Dead {
		return deadFound(queue, id, key, r.Text(5), r.Int(3))
	}
	found := livingFound(queue, code, id, key, r.Text(4), r.Text(5), r.Int(3))
	if slot, _ := message.SplitScore(r.Int(3)); code == store.Waiting && slot > 0 {
		found.Parked = &message.ParkedRoute{Slot: slot}
		found.Parked.Since, found.Parked.Route, found.Parked.Reason = scripts.CutRoute(r.Text(6))
	}
	return found
}

// deadFound is a dead letter; diedMs is 0 where it is not known.
func deadFound(queue, id, key, stored string, diedMs int64) Found {
	letter := message.DecodeDeadLetter(message.Member(id, key), stored)
	letter.Queue = queue
	found := Found{
		Message: letter.Message, Code: store.Dead, Reason: letter.Reason,
		MaybePublished: letter.Attempts.MaybeOut > 0, Err: letter.Err,
	}
	if diedMs != 0 {
		found.DiedAt = time.UnixMilli(diedMs)
	}
	return found
}

// livingFound is a message that is not dead; score is 0 where it is not known.
func livingFound(queue string, code store.Code, id, key, attempts, stored string, score int64) Found {
	found := Found{Code: code}
	history, err := message.ParseHistory(attempts)
	if err == nil {
		err = found.Decode(stored)
	}
	found.ID, found.Key, found.Queue, found.Err = id, key, queue, err
	if score != 0 {
		found.DueAt = history.Promised(score)
	}
	found.Attempt = history.Attempts.Begun + 1
	found.MaybePublished = history.Attempts.MaybeOut > 0
	return found
}

// endOf reads an end; nil where there is none, or it is too old.
func endOf(l *store.Layout, stored string, endedMs, nowMs int64) *message.End {
	if stored == "" || nowMs-endedMs > l.Rules.History.Age.Milliseconds() {
		return nil
	}
	end, err := message.ParseEnd(stored, time.UnixMilli(endedMs))
	if err != nil {
		return nil // It is of a later version. No history is better than none of the message.
	}
	return &end
}

// laterEnd is the later one of two that may be nil.
func laterEnd(a, b *message.End) *message.End {
	if a == nil || b != nil && b.At.After(a.At) {
		return b
	}
	return a
}

// endElsewhere looks in all shards for what became of a message: the end stays where the
// message was, and a change of the layout may have given it another home since.
func endElsewhere(ctx context.Context, queue *store.Queue, l *store.Layout, id, key string) (last *message.End, err error) {
	if !l.Rules.History.IsKept() || !l.HasChanged() {
		return nil, nil
	}
	nowMs, member := queue.Now().UnixMilli(), message.Member(id, key)
	type end struct {
		what *redis.StringCmd
		when *redis.FloatCmd
	}
	asked, err := ask(ctx, queue, l.Keys()[:l.InUse()], func(pipe redis.Pipeliner, k keys.Shard) end {
		ended, ends := k.History()
		return end{pipe.HGet(ctx, ends, member), pipe.ZScore(ctx, ended, member)}
	})
	if err != nil {
		return nil, fmt.Errorf("read history: %w", err)
	}
	for _, e := range asked {
		last = laterEnd(endOf(l, e.what.Val(), int64(e.when.Val()), nowMs), last)
	}
	return last, nil
}
