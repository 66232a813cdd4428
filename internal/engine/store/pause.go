package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"

	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// maxPaused is how many topics of a queue may be paused at a time: each heartbeat
// brings them all, and each takes a slot in every shard.
const maxPaused = 256

// ErrManyPaused is returned where as many topics are paused as may be.
var ErrManyPaused = fmt.Errorf("delay: %d topics of the queue are paused, no more may be", maxPaused)

// Pause stops one topic of the queue, or the whole queue where it is empty, and
// returns since when it is stopped, by Redis' clock: that was before this call where
// it was paused already. Nothing of it is claimed any more, as soon as the instances
// have heard of it: at once, or within a heartbeat. What is in flight is finished. Its
// error may be a [message.InvalidError] of the topic.
func (q *Admin) Pause(ctx context.Context, topic string) (since time.Time, err error) {
	if topic != "" {
		l, err := q.AwaitLayout(ctx)
		if err != nil {
			return time.Time{}, err
		}
		if err := message.CheckTopic(l.Sink, topic); err != nil {
			return time.Time{}, err
		}
	}
	_, since, err = q.setPaused(ctx, topic, true)
	if err == nil && since.IsZero() {
		err = ErrManyPaused
	}
	return since, err
}

// Resume lets a topic, or the queue, go on, and returns since when it was paused;
// zero if it was not.
func (q *Admin) Resume(ctx context.Context, topic string) (since time.Time, err error) {
	since, _, err = q.setPaused(ctx, topic, false)
	return since, err
}

func (q *Admin) setPaused(ctx context.Context, topic string, pause bool) (before, now time.Time, err error) {
	err = q.repeat(ctx, func(*Layout) error {
		cmd, err := q.conn.Run(ctx, scripts.Pause, []string{q.keys.Paused(), q.keys.Instances()}, topic, scripts.Flag(pause), maxPaused)
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

// Paused returns which topics are paused, and since when; the empty one is the
// whole queue.
func (q *Admin) Paused(ctx context.Context) (paused map[string]time.Time, err error) {
	err = q.repeat(ctx, func(*Layout) error {
		fields, err := q.conn.Client(ctx).HGetAll(ctx, q.keys.Paused()).Result()
		paused = parsePaused(fields)
		return err
	})
	return paused, err
}

func parsePaused(fields map[string]string) map[string]time.Time {
	paused := make(map[string]time.Time, len(fields))
	for topic, text := range fields {
		ms, _ := strconv.ParseInt(text, 10, 64) // Paused all the same.
		paused[topic] = time.UnixMilli(ms)
	}
	return paused
}
