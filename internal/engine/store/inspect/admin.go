// Package inspect reads a queue for operators: stats, counters, lists, dead letters, the
// forecast, the audit, and the state of one message. It also has what operators do by hand
// (redrive, purge, pause, limits). No poller and no producer runs it.
package inspect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/conn"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
	"github.com/delaybridge/delaybridge/internal/engine/store/pause"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// Admin is a queue as its operators see it: what it holds, what it has counted,
// and its dead letters.
type Admin struct{ queue *store.Queue }

// NewAdmin returns the operators' view of a queue.
func NewAdmin(queue *store.Queue) *Admin { return &Admin{queue} }

// Instances returns each instance's last heartbeat, and Redis' time now. It is for
// display: a dead instance stays in the list for some time.
func (a *Admin) Instances(ctx context.Context) (beats []store.Heartbeat, now time.Time, err error) {
	err = a.queue.Repeat(ctx, func(*store.Layout) error {
		rdb := a.queue.Redis(ctx)
		if now, err = rdb.Time(ctx).Result(); err != nil {
			return err
		}
		entries, err := rdb.ZRangeWithScores(ctx, a.queue.Keys().Instances(), 0, -1).Result()
		beats = make([]store.Heartbeat, len(entries))
		for i, z := range entries {
			name, _ := z.Member.(string)
			beats[i] = store.Heartbeat{Instance: name, At: int64(z.Score)}
		}
		return err
	})
	return beats, now, err
}

// Losses returns the losses that nobody has acknowledged, oldest first.
func (a *Admin) Losses(ctx context.Context) ([]store.Loss, error) {
	return store.Repeat(ctx, a.queue, func(*store.Layout) ([]store.Loss, error) { return a.queue.Layouts().Losses(ctx) })
}

// Acknowledge forgets the losses of these ids, and returns how many of them existed.
func (a *Admin) Acknowledge(ctx context.Context, ids []string) (n int, err error) {
	if n, err = a.queue.Layouts().Acknowledge(ctx, ids); err != nil {
		return 0, store.Unavailable(err)
	}
	return n, nil
}

// ask is [conn.AskShards] for a queue.
func ask[T any](ctx context.Context, queue *store.Queue, shards []keys.Shard, of func(redis.Pipeliner, keys.Shard) T) ([]T, error) {
	return conn.AskShards(ctx, queue.Redis(ctx), shards, of)
}

// askShard runs a script that reads a shard of the layout, and passes it the epoch first. Its error
// may be a refusal, which [store.Queue.Repeat] handles.
func askShard(
	ctx context.Context, queue *store.Queue, layout *store.Layout, shard int, s *scripts.Script, keys []string, args ...any,
) (*scripts.Reply, error) {
	cmd, err := queue.Run(ctx, s, keys, append([]any{layout.Epoch}, args...)...)
	if err != nil {
		return nil, err
	}
	r := scripts.NewReply(cmd)
	return r, errors.Join(layout.Accepted(r, shard), r.Err)
}

// ErrManyPaused is returned if no further topic can be paused.
var ErrManyPaused = fmt.Errorf("delay: %d topics of the queue are paused, which is the limit", pause.Most)

// Pause stops a topic of the queue, or the whole queue if topic is empty, and records by as its author. It
// returns when the pause began, by Redis' clock, which is before this call if somebody had paused it already.
// Instances stop claiming as soon as they hear of it: at once, or within a heartbeat. Messages in flight are
// finished. Its error may be a [message.InvalidError] of the topic. After any other the queue may be paused,
// also some time later, but not once another Pause or Resume of the queue has been answered.
func (a *Admin) Pause(ctx context.Context, topic, by string) (since time.Time, err error) {
	if topic != "" {
		l, err := a.queue.AwaitLayout(ctx)
		if err != nil {
			return time.Time{}, err
		}
		if err := message.CheckTopic(l.Sink, topic); err != nil {
			return time.Time{}, err
		}
	}
	_, since, err = a.setPaused(ctx, topic, by, true)
	if err == nil && since.IsZero() {
		err = ErrManyPaused
	}
	return since, err
}

// Resume ends the pause of a topic, or of the queue, and returns when the pause
// began; zero if there was none. For its error see [Admin.Pause].
func (a *Admin) Resume(ctx context.Context, topic string) (since time.Time, err error) {
	since, _, err = a.setPaused(ctx, topic, "", false)
	return since, err
}

// setPaused names the calls that it knows of, so that a run which is on its way for longer changes nothing
// once another call has been answered.
func (a *Admin) setPaused(ctx context.Context, topic, by string, isPause bool) (before, now time.Time, err error) {
	field, text := pause.ByField(topic, by)
	var seen any = ""
	err = a.queue.Repeat(ctx, func(*store.Layout) error {
		for {
			cmd, err := a.queue.Run(ctx, scripts.Pause, []string{a.queue.Keys().Paused(), a.queue.Keys().Instances()},
				topic, scripts.Flag(isPause), pause.Most, field, text, pause.Changes, seen)
			if err != nil {
				return err
			}
			r := scripts.NewReply(cmd)
			before, now, seen = instantOf(r.Int(0)), instantOf(r.Int(1)), r.Int(2)
			if r.Err != nil || r.Int(0) != pausedMeanwhile {
				return r.Err
			}
		}
	})
	return before, now, err
}

// pausedMeanwhile is the answer to a run that has seen another number of calls.
const pausedMeanwhile = -2

// instantOf converts a script's time; a negative one means none.
func instantOf(ms int64) time.Time {
	if ms < 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// Paused returns the pauses by topic; the empty topic stands for the whole queue.
func (a *Admin) Paused(ctx context.Context) (map[string]pause.Pause, error) {
	return store.Repeat(ctx, a.queue, func(*store.Layout) (map[string]pause.Pause, error) {
		fields, err := a.queue.Redis(ctx).HGetAll(ctx, a.queue.Keys().Paused()).Result()
		return pause.Parse(fields), err
	})
}
