package poller

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// maxDrainMargin is the longest time kept at the end of a drain for settling
// what was cut short.
const maxDrainMargin = 3 * time.Second

// sayAgain is how often the same trouble of a topic is logged, maxTroubles how
// many are remembered.
const (
	sayAgain    = time.Minute
	maxTroubles = 256
)

// common is what the shards of a queue share.
type common struct {
	Config
	base time.Time
	// phase is how long base is after processBase.
	phase time.Duration
	// redisDownShards and sinkDownShards count, so that many shards that see one
	// fault say it once.
	redisDownShards, sinkDownShards atomic.Int32

	mu       sync.Mutex
	said     map[string]time.Duration
	obtained Obtained
}

// now is an instant of the monotonic clock.
func (c *common) now() time.Duration { return time.Since(c.base) }

// processBase is where the common instants of all pollers of the process count from.
var processBase = time.Now()

// nextCommon is the first of the instants after now at which all shards of the
// process renew their leases, so that their calls can travel together. It is
// at most renewEvery away.
func (c *common) nextCommon(now time.Duration) time.Duration {
	every := c.renewEvery()
	passed := (now + c.phase) % every
	if passed < 0 {
		passed += every
	}
	return now + every - passed
}

// callTimeout limits one call of the store: a longer one is of no use, since
// the lease counts from its beginning.
func (c *common) callTimeout() time.Duration { return c.Lease }

// redisNow estimates Redis' clock: never ahead of it but by its own drift.
func (s *shard) redisNow() time.Time {
	return time.Unix(0, s.redisOffset.Load()+int64(s.now()))
}

func (s *shard) redisSilent(event string, err error) {
	if s.callCtx.Err() != nil || s.redisDown.Swap(true) {
		return
	}
	if s.redisDownShards.Add(1) == 1 {
		s.log.Warn("redis unavailable", "event", event, "err", err)
	}
}

func (s *shard) redisAnswered() {
	if s.redisDown.Load() && s.redisDown.Swap(false) && s.redisLeft() {
		s.log.Info("redis back", "event", "claim")
	}
}

// redisLeft reports whether this was the last shard that could not reach Redis.
func (c *common) redisLeft() bool { return c.redisDownShards.Add(-1) == 0 }

func (c *common) sinkLeft() bool { return c.sinkDownShards.Add(-1) == 0 }

func (c *common) sinkGone(cause sinks.Outcome) {
	if c.sinkDownShards.Add(1) > 1 {
		return
	}
	c.Observer.SinkUp(c.SinkName, false)
	c.Logger.Warn("sink unavailable, messages wait", "event", "publish", "reason", string(cause.Reason), "err", cause.Err)
}

// sinkBack is told of the first answer, and of the first after an outage.
func (c *common) sinkBack(wasDown bool) {
	if wasDown && c.sinkLeft() {
		c.Logger.Info("sink back", "event", "publish")
	}
	if c.sinkDownShards.Load() == 0 {
		c.Observer.SinkUp(c.SinkName, true)
	}
}

// firstFailure is the first outcome of a batch that is a failure of the sink.
func firstFailure(b *batch) sinks.Outcome {
	for _, outcome := range b.outcomes {
		if !answered(outcome) && outcome.Reason != reasonHeldBack {
			return outcome
		}
	}
	return sinks.Outcome{}
}

// report counts a message that was not acknowledged.
func (s *shard) report(claimed *message.Claimed, outcome sinks.Outcome) {
	if claimed.Err != nil {
		s.Observer.DecodeError(s.Queue)
		return
	}
	if outcome.Reason == reasonHeldBack {
		return
	}
	s.Observer.PublishFailure(s.Queue, outcome.Class.String(), string(outcome.Reason))
	if outcome.Reason == sinks.ReasonTopicMissing || outcome.Reason == sinks.ReasonUnroutable {
		s.Observer.SinkMissing(s.SinkName, claimed.Topic)
	}
}

// logRefusal says that a message went to the dead letters, or, once a minute
// for each topic and reason, that one is tried again.
func (s *shard) logRefusal(claimed *message.Claimed, verdict *message.Verdict, outcome sinks.Outcome) {
	fields := []any{
		"event", "settle", "id", claimed.ID, "topic", claimed.Topic,
		"attempt", claimed.Attempts.Begun + 1,
	}
	switch {
	case verdict.Verb == message.VerbDeadLetter:
		s.log.Warn("message dead-lettered", append(fields, "reason", verdict.Reason)...)
	case s.sayNow(claimed.Topic + "\x00" + string(outcome.Reason)):
		s.log.Warn("message refused, tried again later; said once a minute",
			append(fields, "reason", string(outcome.Reason), "err", outcome.Err)...)
	default:
		s.log.Debug("message refused, tried again later",
			append(fields, "reason", string(outcome.Reason), "err", outcome.Err)...)
	}
}

// sayNow reports whether the trouble was not said within the last minute.
func (c *common) sayNow(trouble string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if last, known := c.said[trouble]; known && now-last < sayAgain {
		return false
	}
	if len(c.said) >= maxTroubles {
		clear(c.said)
	}
	c.said[trouble] = now
	return true
}

// recovered, deferred, makes an error of a panic. A nil err drops it.
func recovered(log *slog.Logger, event string, err *error) {
	if cause := recover(); cause != nil {
		logPanic(log, event, cause)
		if err != nil {
			*err = fmt.Errorf("%s panicked: %v", event, cause)
		}
	}
}

func logPanic(log *slog.Logger, event string, cause any) {
	log.Error("panic", "event", event, "err", fmt.Sprint(cause), "stack", string(debug.Stack()))
}

// sleep waits, and reports false where ctx ended first.
func sleep(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// signal notes in a channel of 1 that something happened; several become one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func drainSignal(c <-chan struct{}) {
	select {
	case <-c:
	default:
	}
}
