// Package retry delivers messages again, later. A consumer that cannot handle a message now hands it to
// [Retrier.Retry] and acknowledges it: the bridge publishes it to its topic again after a delay that grows from
// time to time, and to a topic of dead letters when it has failed too often. So no partition and no
// queue stands still behind it, and no topics for delays are needed. It knows no broker: docs/retry.md has
// the few lines for kafka-go, amqp091, nats.go, franz-go and Watermill.
package retry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Names of the headers of a message that is delivered again.
const (
	// HeaderAttempt is how often the message was delivered again: 1 for the first time.
	HeaderAttempt = "retry-attempt"
	// HeaderOrigin is the [Message.Name] of the first delivery. Copies of one message have the same, so drop
	// copies by origin and attempt.
	HeaderOrigin = "retry-origin"
	// HeaderError is why it failed last, and HeaderTopic, of a dead letter, where it was consumed.
	HeaderError = "retry-error"
	HeaderTopic = "retry-topic"
)

const (
	maxAttempts = 1000
	maxOrigin   = 200 // bytes; a longer one is hashed
	maxError    = 256
)

// Policy says when and how often a message is delivered again.
type Policy struct {
	// Limit is how often, from 1 to 1,000.
	Limit int
	// Delay is how long before the n-th time, from 1 on. Default: [Exponential] from a second to an hour.
	Delay func(n int) time.Duration
	// DeadTopic gets what was delivered again Limit times, and failed. If it is empty, Retry returns
	// [ErrExhausted] for such a message.
	DeadTopic string
	// Remember is for how long a delivery that comes twice is recognized, from a minute to 30 days. Default: a day.
	Remember time.Duration
}

// ErrExhausted is the answer for a message that has failed too often, if there is no topic for it.
var ErrExhausted = errors.New("retry: all attempts have failed")

// Exponential returns a [Policy.Delay] that doubles: first, 2*first, 4*first, up to most.
func Exponential(first, most time.Duration) func(n int) time.Duration {
	return func(n int) time.Duration {
		d := first
		for ; n > 1 && d < most; n-- {
			d *= 2
		}
		return min(d, most)
	}
}

// Message is what a consumer has got.
type Message struct {
	// Name names the delivery: the broker delivers no other message under it, and this one always. Take
	// topic, partition and offset from Kafka, stream and sequence from NATS, the message id from
	// RabbitMQ. Default: the header delay-uid, for what the bridge has published.
	Name string
	// Topic is where it is published again: a Kafka topic, a RabbitMQ routing key, a NATS subject.
	Topic, Key string
	// Headers go through, but for those whose names belong to the bridge or to NATS.
	Headers map[string]string
	Body    []byte
}

// Attempt is how often the message was delivered again, 0 for the first delivery.
func (m *Message) Attempt() int {
	n, _ := strconv.Atoi(m.Headers[HeaderAttempt]) // Without one it is the first delivery.
	return max(n, 0)
}

// Outcome is what becomes of a message.
type Outcome struct {
	// Ref is the message that waits, which may be cancelled.
	Ref delay.Ref
	// Attempt is how often it was delivered again when it arrives, and DueAt when that is; zero if this
	// delivery was handed over before, and its message has arrived.
	Attempt int
	DueAt   time.Time
	// IsDead: it goes to the topic of dead letters, at once.
	IsDead bool
}

// Retrier delivers messages again. It may be used by several goroutines.
type Retrier struct {
	queue  delay.Scheduler
	policy Policy
}

// New returns a Retrier that schedules with that client. The error is [delay.ErrInvalid].
func New(queue delay.Scheduler, policy Policy) (*Retrier, error) {
	if policy.Limit < 1 || policy.Limit > maxAttempts {
		return nil, fmt.Errorf("%w: limit %d: from 1 to %d", delay.ErrInvalid, policy.Limit, maxAttempts)
	}
	if policy.Delay == nil {
		policy.Delay = Exponential(time.Second, time.Hour)
	}
	policy.Remember = cmp.Or(policy.Remember, 24*time.Hour)
	return &Retrier{queue, policy}, nil
}

// Retry has a message delivered again, or makes a dead letter of it; cause, unless nil, becomes a header.
// Acknowledge the message if the error is nil, and not before. A message that is delivered twice because the
// acknowledgement was lost, and fails twice, is still delivered again once, as long as [Policy.Remember] says.
//
// The errors are [ErrExhausted] and those of [delay.Client.Schedule]: do not acknowledge then, or try again.
func (r *Retrier) Retry(ctx context.Context, m Message, cause error) (Outcome, error) {
	origin := cmp.Or(m.Headers[HeaderOrigin], m.Name, m.Headers[delay.HeaderUID])
	if origin == "" {
		return Outcome{}, fmt.Errorf("%w: name: a message that the bridge has not published needs one", delay.ErrInvalid)
	}
	if len(origin) > maxOrigin {
		sum := sha256.Sum256([]byte(origin))
		origin = hex.EncodeToString(sum[:])
	}
	out := Outcome{Attempt: m.Attempt() + 1}
	again := delay.Message{
		ID: fmt.Sprint(origin, "/retry/", out.Attempt), Key: m.Key, Topic: m.Topic, Headers: headers(m.Headers), Body: m.Body,
	}
	when := delay.After(0)
	if out.IsDead = out.Attempt > r.policy.Limit; !out.IsDead {
		when = delay.After(r.policy.Delay(out.Attempt))
		again.Headers[HeaderAttempt] = strconv.Itoa(out.Attempt)
	} else {
		if r.policy.DeadTopic == "" {
			return Outcome{}, ErrExhausted
		}
		out.Attempt--
		again.ID, again.Topic = origin+"/dead", r.policy.DeadTopic
		again.Headers[HeaderTopic] = m.Topic
	}
	again.Headers[HeaderOrigin] = origin
	if cause != nil {
		again.Headers[HeaderError] = printable(cause.Error())
	}
	out.Ref = delay.Ref{ID: again.ID, Key: again.Key}
	result, err := r.queue.Schedule(ctx, again, when, delay.Once("retry", r.policy.Remember))
	if errors.Is(err, delay.ErrDuplicate) || errors.Is(err, delay.ErrTooLate) { // By this very delivery, and Redis has forgotten the call.
		err = nil
	}
	if err != nil {
		return Outcome{}, fmt.Errorf("retry: %w", err)
	}
	out.DueAt = result.DueAt
	return out, nil
}

// headers are those that a message may have that is scheduled.
func headers(all map[string]string) map[string]string {
	own := maps.Clone(all)
	if own == nil {
		own = map[string]string{}
	}
	maps.DeleteFunc(own, func(name, _ string) bool { return message.IsReserved(name) })
	return own
}

// printable makes a header's value of a text.
func printable(text string) string {
	clean := strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text, "?"))
	if len(clean) > maxError {
		clean = strings.ToValidUTF8(clean[:maxError], "")
	}
	return strings.TrimSpace(clean)
}
