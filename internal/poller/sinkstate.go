package poller

import "time"

// The waits of a shard whose sink is down, and of one whose sink answers for
// some messages only.
const (
	sinkBackoffInitial = 100 * time.Millisecond
	sinkBackoffLimit   = 5 * time.Second
	shakyInitial       = 20 * time.Millisecond
	shakyLimit         = 500 * time.Millisecond
	shakyMemory        = 5 * time.Second
)

// Every widerProbe-th probe in a row takes widerProbeSize messages, so that one
// message whose outcome is always unknown cannot keep the shard for ever.
const (
	widerProbe     = 4
	widerProbeSize = 8
)

// rampFactor is how fast batches grow again after a panic of the sink: a
// message that makes it panic is then soon alone, and punished alone.
const rampFactor = 4

// sinkState is what a shard knows of its sink. Only the loop uses it.
type sinkState struct {
	sinkKnown bool // it has answered once
	sinkDown  bool
	sinkPause backoff
	// ramp is how many messages to take at a time after a panic; 0 is no limit.
	ramp int
	// shaky is the pause after batches of which the sink answered only a part.
	shaky   backoff
	shakyAt time.Duration
}

// learn draws the conclusions from a finished batch.
func (s *shard) learn(b *batch) {
	now := s.now()
	switch {
	case !b.attempted:
	case b.answered:
		s.sinkAnswered(b)
	default:
		s.sinkSilent(b, now)
	}
	if !b.partial {
		return
	}
	if now-s.shakyAt > shakyMemory {
		s.shaky.reset()
	}
	s.shakyAt = now
	s.pausedUntil = max(s.pausedUntil, now+s.shaky.next())
}

func (s *shard) sinkAnswered(b *batch) {
	if s.ramp > 0 {
		s.ramp = max(s.ramp, len(b.claim.Messages)) * rampFactor
		if s.ramp >= s.Batch {
			s.ramp = 0
		}
	}
	if s.sinkDown || !s.sinkKnown {
		s.common.sinkBack(s.sinkDown)
	}
	if s.sinkDown {
		s.pausedUntil = 0
	}
	s.sinkKnown, s.sinkDown = true, false
	s.sinkPause.reset()
}

// sinkSilent is for a batch of which the sink answered for no message. Batches
// that were under way when the sink went down count as one failure.
func (s *shard) sinkSilent(b *batch, now time.Duration) {
	if b.panicked {
		s.ramp = 1
	}
	if s.sinkDown && !b.probe {
		return
	}
	if !s.sinkDown {
		s.sinkDown = true
		s.common.sinkGone(firstFailure(b))
	}
	s.pausedUntil = now + s.sinkPause.next()
}

// room is how many messages the next claim may take.
func (s *shard) room() int {
	alone := len(s.live) == 0
	switch {
	case s.draining || s.barrier || len(s.live) >= s.InFlight:
		return 0
	case s.sinkDown && alone && s.sinkPause.failures%widerProbe == 0 && s.ramp == 0:
		return min(s.Batch, widerProbeSize)
	case s.sinkDown && alone:
		return 1
	case s.sinkDown, s.ramp > 0 && !alone:
		return 0
	case s.ramp > 0:
		return min(s.Batch, s.ramp)
	default:
		return s.Batch
	}
}
