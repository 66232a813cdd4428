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
	"github.com/delaybridge/delaybridge/internal/engine/store/turns"
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
	// HeaderTurn names a delivery of a policy that is [Policy.Ordered].
	HeaderTurn = "retry-turn"
)

const (
	maxAttempts = 1000
	maxOrigin   = 200 // bytes; a longer one is hashed
	maxError    = 256

	minHold, maxHold = time.Minute, 30 * 24 * time.Hour
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
	// Ordered keeps the order of a key: see docs/retry.md for what that needs. It needs a [delay.Client], [Retrier.Handle] and a DeadTopic.
	// Messages without a Key have no order.
	Ordered bool
	// Hold is for how long after a repetition was due later messages of its key are held back, if it does not come: somebody has
	// cancelled it, or the consumer is so far behind. From a minute to 30 days. Default: a day.
	Hold time.Duration
}

// ErrCrowded is the answer for a message of a key of which too many are outstanding already, with [Policy.Ordered].
var ErrCrowded = errors.New("retry: too many messages of that key are outstanding")

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
	turns  *turns.Turns // nil: not ordered
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
	policy.Hold = cmp.Or(policy.Hold, 24*time.Hour)
	r := &Retrier{queue: queue, policy: policy}
	if !policy.Ordered {
		return r, nil
	}
	taker, ok := queue.(turnTaker)
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: ordered: needs a delay.Client, not a %T", delay.ErrInvalid, queue)
	case policy.DeadTopic == "":
		return nil, fmt.Errorf("%w: dead topic: an ordered policy needs one", delay.ErrInvalid)
	case policy.Hold < minHold || policy.Hold > maxHold:
		return nil, fmt.Errorf("%w: hold %s: from %s to %s", delay.ErrInvalid, policy.Hold, minHold, maxHold)
	}
	r.turns = taker.Turns()
	return r, nil
}

// Handle has a message handled, and delivers it again if that fails; so it calls [Retrier.Retry]. Acknowledge the message if the error is nil,
// and not before. With [Policy.Ordered] it handles a message only in its turn, and hands it over before.
//
// The errors are those of Retry, and [ErrCrowded]. With [Policy.Ordered], nothing later of its partition or queue may be handled after
// one, so begin again at that message.
func (r *Retrier) Handle(ctx context.Context, m Message, handle func(context.Context, Message) error) error {
	if r.policy.Ordered && m.Key != "" {
		return r.inTurn(ctx, m, handle)
	}
	err := handle(ctx, m)
	if err != nil {
		_, err = r.retry(ctx, &m, err)
	}
	return err
}

// Retry has a message delivered again, or makes a dead letter of it; cause, unless nil, becomes a header.
// Acknowledge the message if the error is nil, and not before. A message that is delivered twice because the
// acknowledgement was lost, and fails twice, is still delivered again once, as long as [Policy.Remember] says.
//
// The errors are [ErrExhausted] and those of [delay.Client.Schedule]: do not acknowledge then, or try again. With [Policy.Ordered]
// it is [delay.ErrInvalid]: call Handle.
func (r *Retrier) Retry(ctx context.Context, m Message, cause error) (Outcome, error) {
	if r.policy.Ordered {
		return Outcome{}, fmt.Errorf("%w: ordered: call Handle, which knows whose turn it is", delay.ErrInvalid)
	}
	return r.retry(ctx, &m, cause)
}

func (r *Retrier) retry(ctx context.Context, m *Message, cause error) (Outcome, error) {
	origin, err := originOf(m)
	if err != nil {
		return Outcome{}, err
	}
	out := Outcome{Attempt: m.Attempt() + 1}
	again, when := r.again(m, origin, out.Attempt, cause), delay.After(0)
	if out.IsDead = out.Attempt > r.policy.Limit; !out.IsDead {
		when = delay.After(r.policy.Delay(out.Attempt))
	} else {
		if r.policy.DeadTopic == "" {
			return Outcome{}, ErrExhausted
		}
		out.Attempt--
		again = r.dead(m, origin, cause)
	}
	out.Ref = delay.Ref{ID: again.ID, Key: again.Key}
	result, err := r.schedule(ctx, again, when)
	if err != nil {
		return Outcome{}, err
	}
	out.DueAt = result.DueAt
	return out, nil
}

// originOf names the first delivery.
func originOf(m *Message) (string, error) {
	origin := cmp.Or(m.Headers[HeaderOrigin], m.Name, m.Headers[delay.HeaderUID])
	if origin == "" {
		return "", fmt.Errorf("%w: name: a message that the bridge has not published needs one", delay.ErrInvalid)
	}
	if len(origin) > maxOrigin {
		sum := sha256.Sum256([]byte(origin))
		origin = hex.EncodeToString(sum[:])
	}
	return origin, nil
}

// again is a message as it is delivered again.
func (r *Retrier) again(m *Message, origin string, attempt int, cause error) delay.Message {
	again := delay.Message{
		ID: fmt.Sprint(origin, "/retry/", attempt), Key: m.Key, Topic: m.Topic, Headers: headers(m.Headers), Body: m.Body,
	}
	again.Headers[HeaderOrigin] = origin
	if attempt > 0 {
		again.Headers[HeaderAttempt] = strconv.Itoa(attempt)
	}
	if cause != nil {
		again.Headers[HeaderError] = printable(cause.Error())
	}
	return again
}

// dead is a message as a dead letter.
func (r *Retrier) dead(m *Message, origin string, cause error) delay.Message {
	dead := r.again(m, origin, m.Attempt(), cause)
	dead.ID, dead.Topic = origin+"/dead", r.policy.DeadTopic
	dead.Headers[HeaderTopic] = m.Topic
	delete(dead.Headers, HeaderTurn)
	return dead
}

// schedule schedules a message once. There is no due time if that was done before, and it has arrived.
func (r *Retrier) schedule(ctx context.Context, m delay.Message, when delay.When) (delay.Result, error) {
	result, err := r.queue.Schedule(ctx, m, when, delay.Once("retry", r.policy.Remember))
	if errors.Is(err, delay.ErrDuplicate) || errors.Is(err, delay.ErrTooLate) { // By this very delivery, and Redis has forgotten the call.
		err = nil
	}
	if err != nil {
		return delay.Result{}, fmt.Errorf("retry: %w", err)
	}
	return result, nil
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
