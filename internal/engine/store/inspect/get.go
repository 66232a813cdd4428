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

// Snapshot is a message as it was when Redis was asked.
type Snapshot struct {
	message.Message
	// Code is Waiting, InFlight or Dead.
	Code store.Code
	// Reason and DiedAt are the dead letter's; DiedAt is zero if it is not known.
	Reason string
	DiedAt time.Time
	// MaybePublished is set if the broker may have a copy already.
	MaybePublished bool
	// Parked is the route for which it is parked; nil if it is not parked, and in a listing.
	Parked *message.ParkedRoute
	// End says how the message ended, if none is found, and otherwise how an earlier
	// one of that identity did; nil if the queue's history has none, and in a listing.
	End *message.End
	// Err is set if the stored message cannot be decoded.
	Err error
}

// Get finds a message by its identity. If there is none, ok is false, and found.End says how
// it ended.
func Get(ctx context.Context, queue *store.Queue, id, key string) (found Snapshot, ok bool, err error) {
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
		found.End = nil // It is no longer dead: an instance that did not know yet of the queue's history has ended it.
	}
	return found, ok, err
}

// getIn looks in one home of the message.
func getIn(ctx context.Context, queue *store.Queue, layout *store.Layout, home int, id, key string) (found Snapshot, ok bool, err error) {
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

func parseFound(queue string, r *scripts.Reply, code store.Code, id, key string) Snapshot {
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

// deadFound decodes a dead letter; diedMs is 0 if it is not known.
func deadFound(queue, id, key, stored string, diedMs int64) Snapshot {
	letter := message.DecodeDeadLetter(message.Member(id, key), stored)
	letter.Queue = queue
	found := Snapshot{
		Message: letter.Message, Code: store.Dead, Reason: letter.Reason,
		MaybePublished: letter.Attempts.MaybeOut > 0, Err: letter.Err,
	}
	if diedMs != 0 {
		found.DiedAt = time.UnixMilli(diedMs)
	}
	return found
}

// livingFound decodes a message that is not dead; score is 0 if it is not known.
func livingFound(queue string, code store.Code, id, key, attempts, stored string, score int64) Snapshot {
	found := Snapshot{Code: code}
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

// endOf decodes an end; nil if there is none, or it is too old.
func endOf(l *store.Layout, stored string, endedMs, nowMs int64) *message.End {
	if stored == "" || nowMs-endedMs > l.Rules.History.Age.Milliseconds() {
		return nil
	}
	end, err := message.ParseEnd(stored, time.UnixMilli(endedMs))
	if err != nil {
		return nil // A later version wrote it. Better no history than no answer about the message.
	}
	return &end
}

// laterEnd returns the later of two ends, which may be nil.
func laterEnd(a, b *message.End) *message.End {
	if a == nil || b != nil && b.At.After(a.At) {
		return b
	}
	return a
}

// endElsewhere looks in all shards for the end of a message: it stays in the shard where
// the message was, and a change of the layout may have moved the home since.
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
