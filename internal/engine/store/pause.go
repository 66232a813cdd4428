package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"

	"github.com/delaybridge/delaybridge/internal/engine/store/scripts"
)

// maxPaused is how many topics of a queue may be paused at a time: each heartbeat
// brings them all, and each takes a slot in every shard.
const maxPaused = 256

// ErrManyPaused is returned where as many topics are paused as may be.
var ErrManyPaused = fmt.Errorf("delay: %d topics of the queue are paused, no more may be", maxPaused)

// Who paused stands beside the pause, in a field that names no topic: topics have no tab.
// Earlier versions take it for a topic that no message has. It says of which pause it is,
// since these leave it when they resume.
const byField = "by\t"

// maxBy is how long the name of who has paused may be, in bytes.
const maxBy = 128

// Pause is a pause of a queue or of a topic.
type Pause struct {
	Since time.Time
	// By is who has paused it; empty where that is not known: a version before this one did.
	By string
}

// Pause stops one topic of the queue, or the whole queue where it is empty, in
// the name of by, and returns since when it is stopped, by Redis' clock: that was before
// this call where it was paused already, by whomever. Nothing of it is claimed any more, as soon as the instances
// have heard of it: at once, or within a heartbeat. What is in flight is finished. Its
// error may be a [message.InvalidError] of the topic.
func (q *Admin) Pause(ctx context.Context, topic, by string) (since time.Time, err error) {
	if topic != "" {
		l, err := q.AwaitLayout(ctx)
		if err != nil {
			return time.Time{}, err
		}
		if err := message.CheckTopic(l.Sink, topic); err != nil {
			return time.Time{}, err
		}
	}
	_, since, err = q.setPaused(ctx, topic, by, true)
	if err == nil && since.IsZero() {
		err = ErrManyPaused
	}
	return since, err
}

// Resume lets a topic, or the queue, go on, and returns since when it was paused;
// zero if it was not.
func (q *Admin) Resume(ctx context.Context, topic string) (since time.Time, err error) {
	since, _, err = q.setPaused(ctx, topic, "", false)
	return since, err
}

func (q *Admin) setPaused(ctx context.Context, topic, by string, pause bool) (before, now time.Time, err error) {
	err = q.repeat(ctx, func(*Layout) error {
		cmd, err := q.conn.Run(ctx, scripts.Pause, []string{q.keys.Paused(), q.keys.Instances()}, topic, scripts.Flag(pause), maxPaused, byField+topic, strings.ToValidUTF8(by[:min(len(by), maxBy)], ""))
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
func (q *Admin) Paused(ctx context.Context) (paused map[string]Pause, err error) {
	err = q.repeat(ctx, func(*Layout) error {
		fields, err := q.conn.Client(ctx).HGetAll(ctx, q.keys.Paused()).Result()
		paused = parsePauses(fields)
		return err
	})
	return paused, err
}

func parsePaused(fields map[string]string) map[string]time.Time {
	paused := make(map[string]time.Time, len(fields))
	for topic, text := range fields {
		if strings.HasPrefix(topic, byField) {
			continue
		}
		ms, _ := strconv.ParseInt(text, 10, 64) // Paused all the same.
		paused[topic] = time.UnixMilli(ms)
	}
	return paused
}

func parsePauses(fields map[string]string) map[string]Pause {
	pauses := make(map[string]Pause, len(fields))
	for topic, since := range parsePaused(fields) {
		of, by, _ := strings.Cut(fields[byField+topic], " ")
		if of != fields[topic] {
			by = ""
		}
		pauses[topic] = Pause{since, by}
	}
	return pauses
}
