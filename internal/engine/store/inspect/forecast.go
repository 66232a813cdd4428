package inspect

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/keys"
)

const (
	// MaxSteps limits the steps of a forecast.
	MaxSteps = 1440
	// countsAtOnce is how many counts, of some microseconds each, are sent together:
	// Redis does them in one go, while all other clients wait.
	countsAtOnce = 128
	// sizesSampled is the size of a forecast's sample of stored messages.
	sizesSampled = 512
)

// ErrForecast is returned for an invalid request; the error names the field.
var ErrForecast = errors.New("invalid forecast")

// Forecast counts the waiting messages by due time. It is read in parts, so a
// message that moves meanwhile may be counted twice, or not at all.
type Forecast struct {
	// Now is Redis' time at the start. From is where the first step begins, not before
	// Now; To is where the last step ends, which may be shorter than Step.
	Now, From, To time.Time
	Step          time.Duration
	// Due counts the messages that are due now, the parked ones among them, which leave
	// when their route heals. Parked counts only those.
	Due, Parked int64
	// Steps counts the messages that fall due in each step, Before those between
	// Now and From, Later those from To on.
	Steps         []int64
	Before, Later int64
	Size          SizeEstimate
}

// SizeEstimate estimates the stored size of a message in bytes: id, key, topic,
// headers and body, and a few bytes more.
type SizeEstimate struct {
	// Mean is the mean of a random sample of Sampled messages; with 95 % confidence,
	// that of all messages differs by at most Error. Both are 0 if no message waits.
	Mean, Error float64
	Sampled     int
}

// span is a range of scores, without its end.
type span struct{ least, most string }

// Forecast counts exactly how many messages fall due in each step between two times,
// with short calls: each step costs one count per shard, in logarithmic time.
func (a *Admin) Forecast(ctx context.Context, from, to time.Time, step time.Duration) (f Forecast, err error) {
	now, err := a.queue.Clock(ctx)
	if err != nil {
		return f, err
	}
	f = Forecast{Now: now, From: from.Truncate(time.Millisecond), To: to.Truncate(time.Millisecond), Step: step}
	if f.From.Before(now) {
		f.From = now // Nothing falls due in the past.
	}
	if err := f.check(); err != nil {
		return Forecast{}, err
	}
	err = a.queue.Repeat(ctx, func(layout *store.Layout) error {
		shards := layout.Keys()[:layout.InUse()]
		sums, waiting, err := a.count(ctx, shards, f.spans())
		if err != nil {
			return err
		}
		f.Parked, f.Before, f.Later, f.Steps = sums[1], sums[2], sums[3], sums[firstStep:]
		f.Due = sums[0] + f.Parked
		f.Size, err = a.sampleSizes(ctx, shards, waiting)
		return err
	})
	return f, err
}

func (f *Forecast) check() error {
	switch {
	case f.Step < time.Millisecond || f.Step%time.Millisecond != 0:
		return fmt.Errorf("%w: step %s: must be whole milliseconds, 1 or more", ErrForecast, f.Step)
	case !f.From.Before(f.To):
		return fmt.Errorf("%w: to %s: must be after from and now, %s", ErrForecast,
			f.To.UTC().Format(message.TimeFormat), f.From.UTC().Format(message.TimeFormat))
	case (f.To.Sub(f.From)-1)/f.Step >= MaxSteps:
		return fmt.Errorf("%w: step %s: makes more than %d steps from %s to %s", ErrForecast, f.Step, MaxSteps,
			f.From.UTC().Format(message.TimeFormat), f.To.UTC().Format(message.TimeFormat))
	}
	return nil
}

// firstStep is the index of the first step in the spans.
const firstStep = 4

// spans returns the spans due and not parked, parked, before, later, and those of the steps.
func (f *Forecast) spans() []span {
	bound := func(ms int64) string { return strconv.FormatInt(min(ms, message.ParkedFrom), 10) }
	now, from, to := f.Now.UnixMilli(), f.From.UnixMilli(), f.To.UnixMilli()
	spans := []span{
		{"-inf", bound(now)},
		{bound(message.ParkedFrom), "+inf"},
		{bound(now), bound(from)},
		{bound(to), bound(message.ParkedFrom)},
	}
	for at := from; at < to; at += f.Step.Milliseconds() {
		spans = append(spans, span{bound(at), bound(min(at+f.Step.Milliseconds(), to))})
	}
	return spans
}

// count counts the messages in each span over all shards, and all messages of each shard.
func (a *Admin) count(ctx context.Context, shards []keys.Shard, spans []span) (sums, waiting []int64, err error) {
	sums, waiting = make([]int64, len(spans)), make([]int64, len(shards))
	for i, k := range shards {
		for from := 0; from < len(spans); from += countsAtOnce {
			part := spans[from:min(len(spans), from+countsAtOnce)]
			cmds, err := a.queue.Redis(ctx).Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for _, s := range part {
					pipe.ZCount(ctx, k.Due, s.least, exclusive(s.most))
				}
				return nil
			})
			if err != nil {
				return nil, nil, fmt.Errorf("forecast: %w", err)
			}
			for n, cmd := range cmds {
				counted := cmd.(*redis.IntCmd).Val() //nolint:forcetypeassert // ZCount queued it.
				sums[from+n] += counted
				waiting[i] += counted
			}
		}
	}
	return sums, waiting, nil
}

func exclusive(score string) string {
	if score == "+inf" {
		return score
	}
	return "(" + score
}

// sampleSizes measures the same fraction of each shard's messages.
func (a *Admin) sampleSizes(ctx context.Context, shards []keys.Shard, waiting []int64) (SizeEstimate, error) {
	var all int64
	for _, n := range waiting {
		all += n
	}
	if all == 0 {
		return SizeEstimate{}, nil
	}
	var sizes []int64
	for i, k := range shards {
		count := (sizesSampled*waiting[i] + all - 1) / all
		if count == 0 {
			continue
		}
		members, err := a.queue.Redis(ctx).ZRandMember(ctx, k.Due, int(count)).Result()
		if err != nil {
			return SizeEstimate{}, fmt.Errorf("sample sizes: %w", err)
		}
		cmds, err := a.queue.Redis(ctx).Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, member := range members {
				pipe.HStrLen(ctx, k.Msg, member)
			}
			return nil
		})
		if err != nil {
			return SizeEstimate{}, fmt.Errorf("sample sizes: %w", err)
		}
		for _, cmd := range cmds {
			if size := cmd.(*redis.IntCmd).Val(); size > 0 { //nolint:forcetypeassert // as above; 0 if it is gone
				sizes = append(sizes, size)
			}
		}
	}
	return estimate(sizes, all), nil
}

// estimate returns the mean of a sample drawn without replacement, and its error.
func estimate(sizes []int64, all int64) SizeEstimate {
	n := float64(len(sizes))
	if n == 0 {
		return SizeEstimate{}
	}
	var sum, squares float64
	for _, size := range sizes {
		sum += float64(size)
	}
	mean := sum / n
	for _, size := range sizes {
		squares += (float64(size) - mean) * (float64(size) - mean)
	}
	e := SizeEstimate{Mean: mean, Sampled: len(sizes)}
	if n > 1 {
		const certain = 1.96 // 95 % of a normal distribution
		e.Error = certain * math.Sqrt(squares/(n-1)/n*max(0, 1-n/float64(all)))
	}
	return e
}
