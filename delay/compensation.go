package delay

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/compensation"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// Compensated is the status of a message that Redis did not take and the broker
// has, see [WithCompensation]: a bridge brings it to Redis once that is back.
// Until then Cancel, Reschedule and Get do not find it.
const Compensated Status = "compensated"

// compensators bounds how many messages of a batch are given to the broker at once.
const compensators = 16

type compensationOptions struct {
	publish func(ctx context.Context, topic string, headers map[string]string, body []byte) error
	topic   string
}

// WithCompensation gives a message to the broker if Redis is away or full:
// publish sends body to the topic delay.compensation.<queue> of the broker that
// the queue's sink names, and a bridge brings the message to Redis when it is
// back. The result's Status is then [Compensated] and there is no error. Where
// publish fails, too, the error is that of Redis with its cause joined, and also
// [ErrUnknown]: the broker may have the message all the same. Repeat it with the
// same ID and the policy [Keep].
//
// publish must return nil only after the broker has acknowledged the message
// durably, end with ctx, and be safe for concurrent use: each message of a batch
// is given to it alone, at most 16 at a time.
//
//   - Kafka: acknowledgements of all replicas; write to the topic.
//   - RabbitMQ: the sink's exchange, the topic as routing key, delivery mode
//     persistent, mandatory, and wait for the confirmation.
//   - NATS: a JetStream publish to the subject, waiting for its ack.
//
// A bridge makes the missing topics or queues when it first starts; until then
// publish should fail rather than drop messages.
//
// Only a call that provably had no effect is compensated: nothing is sent after
// [ErrUnknown] or any other error than [ErrUnavailable] and [ErrFull], nor if the
// caller's ctx has ended, nor under the policy [Replace], which needs an answer. Redis gets half of the call's time (see [WithTimeout] and the
// ctx), the broker the rest. A due time given by [After] counts from the call,
// by the last time that Redis told plus what has passed since; before Redis has
// ever answered, by this machine's clock. Without an answer of Redis yet the
// topic is not checked against the broker's rule.
//
// The message is valid for 24 hours: a bridge that gets it later puts it into
// the topic <topic>.dead and logs that. The broker must take a body that is a
// third larger than the message's own. Another message that has the identity by
// then is left alone, and the compensated one dropped, counted and logged.
func WithCompensation(publish func(ctx context.Context, topic string, headers map[string]string, body []byte) error) Option {
	return func(o *options) { o.compensation.publish = publish }
}

// WithCompensationTopic names another topic than delay.compensation.<queue>; the
// bridge must be configured alike.
func WithCompensationTopic(topic string) Option {
	return func(o *options) { o.compensation.topic = topic }
}

// scheduleOrCompensate is ScheduleBatch of a client with a compensation.
func (c *Client) scheduleOrCompensate(ctx context.Context, requests []Request) ([]Result, error) {
	if slices.ContainsFunc(requests, func(r Request) bool { return errors.Is(r.Repeat, errBoth) }) {
		store.RestUntilAgain(ctx, time.Now())
	}
	ctx, cancel := c.begin(ctx)
	defer cancel()
	began := time.Now()
	deadline, _ := ctx.Deadline()
	first, stop := context.WithDeadline(ctx, began.Add(time.Until(deadline)/2))
	results, err := c.schedule(first, requests)
	stop()
	if err != nil && provablyNot(err) {
		// The queue's own limits are not known; those of all queues hold.
		_, _ = c.check(ctx, &store.Layout{MaxMessage: message.DefaultMaxSize}, requests, results)
		err = nil
	}
	// Redis' clock may have been learnt by this very call; its start is in the past.
	start := c.queue.Now().Add(-time.Since(began))
	var sending sync.WaitGroup
	slots := make(chan struct{}, compensators)
	for i := range results {
		if ctx.Err() != nil || results[i].Err == nil || !provablyNot(results[i].Err) || c.policy(&requests[i]) == Replace {
			continue
		}
		slots <- struct{}{}
		sending.Go(func() {
			defer func() { <-slots }()
			c.compensateOne(ctx, start, &requests[i], &results[i])
		})
	}
	sending.Wait()
	return results, err
}

// errBoth is what neither Redis nor the broker has taken for certain. To repeat that is a new
// call, which may fail as fast.
var errBoth = fmt.Errorf("%w", ErrUnknown)

// provablyNot reports whether the run did not happen.
func provablyNot(err error) bool {
	return !errors.Is(err, ErrUnknown) && (errors.Is(err, ErrUnavailable) || errors.Is(err, ErrFull))
}

// compensateOne gives one message to the broker.
func (c *Client) compensateOne(ctx context.Context, start time.Time, request *Request, result *Result) {
	when, err := request.When.For(result.Ref).resolve(start)
	if err != nil {
		result.Err = err
		return
	}
	m, err := c.toMessage(&request.Message, result.Ref.ID)
	if err != nil {
		result.Err = fmt.Errorf("%w: %w", ErrInvalid, err)
		return
	}
	dueMs := when.Ms
	if when.Relative {
		dueMs += start.UnixMilli() + 1 // Rounded up, so that a delay never ends early.
	}
	body, err := compensation.Encode(&compensation.Message{
		Kind: compensation.KindMessage, Queue: c.queue.Name(), Token: tracedToken(), ID: m.ID, Key: m.Key,
		Topic: m.Topic, Headers: m.Headers, Body: m.Body,
		DueAt: time.UnixMilli(dueMs), ValidUntil: start.Add(compensation.Validity),
	})
	if err != nil {
		result.Err = fmt.Errorf("%w: compensation: %w", result.Err, err)
		return
	}
	if err := c.compensation.publish(ctx, c.compensation.topic, compensation.Headers(), body); err != nil {
		result.Err = fmt.Errorf("%w: %w; compensation: %w", errBoth, result.Err, err)
		return
	}
	result.Status, result.DueAt, result.Err = Compensated, time.UnixMilli(dueMs), nil
}

// tracedToken is the token of a message that no row of a database stands for, but
// whose end leaves a trace, so that a second copy changes nothing.
func tracedToken() string {
	var raw [12]byte
	_, _ = rand.Read(raw[:]) // It never fails.
	return (message.TracedMark + base64.RawURLEncoding.EncodeToString(raw[:]))[:message.TokenLength]
}
