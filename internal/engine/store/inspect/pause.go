package inspect

import (
	"context"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/pause"
	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// ErrManyPaused is returned where as many topics are paused as may be.
var ErrManyPaused = fmt.Errorf("delay: %d topics of the queue are paused, no more may be", pause.Most)

// Pause stops one topic of the queue, or the whole queue where it is empty, in
// the name of by, and returns since when it is stopped, by Redis' clock: that was before
// this call where it was paused already, by whomever. Nothing of it is claimed any more, as soon as the instances
// have heard of it: at once, or within a heartbeat. What is in flight is finished. Its
// error may be a [message.InvalidError] of the topic.
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

// Resume lets a topic, or the queue, go on, and returns since when it was paused;
// zero if it was not.
func (a *Admin) Resume(ctx context.Context, topic string) (since time.Time, err error) {
	since, _, err = a.setPaused(ctx, topic, "", false)
	return since, err
}

func (a *Admin) setPaused(ctx context.Context, topic, by string, isPause bool) (before, now time.Time, err error) {
	field, text := pause.ByField(topic, by)
	err = a.queue.Repeat(ctx, func(*store.Layout) error {
		cmd, err := a.queue.Run(ctx, scripts.Pause, []string{a.queue.Keys().Paused(), a.queue.Keys().Instances()},
			topic, scripts.Flag(isPause), pause.Most, field, text)
		if err != nil {
			return err
		}
		r := scripts.NewReply(cmd)
		before, now = instantOf(r.Int(0)), instantOf(r.Int(1))
		return r.Err
	})
	return before, now, err
}

// instantOf is a time of a script; negative is none.
func instantOf(ms int64) time.Time {
	if ms < 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// Paused returns which topics are paused; the empty one is the whole queue.
func (a *Admin) Paused(ctx context.Context) (map[string]pause.Pause, error) {
	return store.Repeat(ctx, a.queue, func(*store.Layout) (map[string]pause.Pause, error) {
		fields, err := a.queue.Redis(ctx).HGetAll(ctx, a.queue.Keys().Paused()).Result()
		return pause.Parse(fields), err
	})
}
