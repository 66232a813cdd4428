package poller

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
)

// Reasons of outcomes that the poller makes itself.
const (
	// reasonHeldBack: not handed to the sink, to keep order or because the lease
	// or the process ended. Nobody's failure.
	reasonHeldBack sinks.Reason = "held_back"
	// reasonPanic: the sink panicked.
	reasonPanic sinks.Reason = "panic"
	// reasonPanicAlone: the sink panicked on this message alone.
	reasonPanicAlone sinks.Reason = "panic_alone"
	// reasonNoOutcome: the sink returned too few outcomes.
	reasonNoOutcome sinks.Reason = "no_outcome"
)

var (
	heldBack     = sinks.Failed(sinks.Unavailable, reasonHeldBack, nil)
	errNoOutcome = errors.New("the sink reported no outcome")
)

// lease is an unbroken time of holding a shard. Once it lapsed it never comes
// back: what was claimed under it may belong to somebody else by now.
type lease struct {
	until atomic.Int64 // instant of the shard's clock
}

// batch is one claim from its answer to its settling. One goroutine owns it;
// the loop reads what is not atomic only after done is closed.
type batch struct {
	claim message.Claim
	lease *lease
	// deadline is when no publish may start any more, expired when the claim has
	// surely ended if it was not settled: instants of the shard's clock.
	deadline, expired atomic.Int64
	// after are the earlier batches that hold a Key of this one.
	after []*batch
	keyed bool
	// probe is set where the claim was to find out whether the sink is back.
	probe bool

	outcomes    []sinks.Outcome
	verdicts    []message.Verdict
	publishedAt time.Time // Redis' clock
	// unpublished are the Keys of which messages go back to wait, but for those
	// that the broker refused by themselves.
	unpublished map[string]struct{}
	// again is from when a message that went back can be claimed.
	again time.Duration
	// attempted: something was handed to the sink. answered: the broker
	// acknowledged or refused a message. partial: but not every one.
	attempted, answered, partial, panicked bool

	// forsaken stops the extension of the deadline; lost says that the claim was reclaimed.
	forsaken, lost atomic.Bool
	done           chan struct{}
}

func (b *batch) leave(key string) {
	if b.unpublished == nil {
		b.unpublished = make(map[string]struct{})
	}
	b.unpublished[key] = struct{}{}
}

func (b *batch) finished() bool { return closed(b.done) }

// process publishes and settles the batch. It is a goroutine of the shard.
func (s *shard) process(b *batch) {
	defer func() {
		close(b.done)
		signal(s.batchDone)
	}()
	defer recovered(s.log, "settle", nil)
	defer s.Observer.AddInFlight(s.Queue, -len(b.claim.Messages))
	s.publish(b)
	s.settle(b)
}

// publish fills the outcomes of the batch, or leaves them nil: all held back.
func (s *shard) publish(b *batch) {
	defer recovered(s.log, "publish", nil)
	defer func() { b.after = nil }() // Else finished batches would hang together for ever.
	if !s.awaitTurn(b) {
		return
	}
	messages, at := b.publishable()
	if len(messages) == 0 || !s.mayPublish(b) {
		return
	}
	b.attempted = true
	outcomes := s.callSink(b, messages)
	b.publishedAt = s.redisNow()
	b.record(outcomes, at)
}

// record notes the sink's outcomes, one for each message that was published.
func (b *batch) record(outcomes []sinks.Outcome, at positions) {
	unanswered := false
	for _, outcome := range outcomes {
		if answered(outcome) {
			b.answered = true
		} else {
			unanswered = true
		}
	}
	b.partial = b.answered && unanswered
	if at == nil {
		b.outcomes = outcomes
		return
	}
	b.outcomes = make([]sinks.Outcome, len(b.claim.Messages))
	sinks.Fill(b.outcomes, heldBack)
	for i, outcome := range outcomes {
		b.outcomes[at[i]] = outcome
	}
}

func (b *batch) outcome(i int) sinks.Outcome {
	if b.outcomes == nil {
		return heldBack
	}
	return b.outcomes[i]
}

// awaitTurn waits for the earlier batches that hold a Key of this one. It
// reports false where the drain came first.
func (s *shard) awaitTurn(b *batch) bool {
	for _, earlier := range b.after {
		select {
		case <-earlier.done:
		case <-s.stop:
			return false
		}
	}
	return true
}

// mayPublish is the owner rule: no publish starts after the lease or the
// claim's deadline, or in a drain.
func (s *shard) mayPublish(b *batch) bool {
	now := int64(s.now())
	return now < b.lease.until.Load() && now < b.deadline.Load() && !closed(s.stop)
}

// positions maps what is published to the messages of the claim; nil is the identity.
type positions []int

// publishable returns the messages to publish, in due order: not those that cannot
// be decoded, and not those of a Key of which an earlier batch left some behind.
func (b *batch) publishable() ([]message.Message, positions) {
	messages := make([]message.Message, 0, len(b.claim.Messages))
	var at positions
	for i := range b.claim.Messages {
		claimed := &b.claim.Messages[i]
		if claimed.Err != nil || claimed.Key != "" && leftBy(b.after, claimed.Key) {
			if at == nil {
				at = identity(i, len(b.claim.Messages))
			}
			continue
		}
		if at != nil {
			at = append(at, i)
		}
		messages = append(messages, claimed.Message)
		messages[len(messages)-1].Attempt = claimed.Attempts.Begun + 1
	}
	return messages, at
}

func identity(length, capacity int) positions {
	at := make(positions, length, capacity)
	for i := range at {
		at[i] = i
	}
	return at
}

// callSink publishes, and answers for a sink that panics or miscounts.
func (s *shard) callSink(b *batch, messages []message.Message) (outcomes []sinks.Outcome) {
	defer func() {
		if cause := recover(); cause != nil {
			logPanic(s.log, "publish", cause)
			b.panicked = true
			reason := reasonPanic
			if len(messages) == 1 {
				reason = reasonPanicAlone
			}
			outcomes = make([]sinks.Outcome, len(messages))
			sinks.Fill(outcomes, sinks.Failed(sinks.Unknown, reason, fmt.Errorf("sink panicked: %v", cause)))
		}
	}()
	ctx, cancel := context.WithTimeout(s.publishCtx, s.PublishTimeout)
	defer cancel()
	outcomes = sinks.Publish(ctx, s.Sink, messages)
	for len(outcomes) < len(messages) {
		outcomes = append(outcomes, sinks.Failed(sinks.Unknown, reasonNoOutcome, errNoOutcome))
	}
	return outcomes[:len(messages)]
}
