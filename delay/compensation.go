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

// Compensated is the status of a message that Redis did not accept and that the
// broker keeps instead, see [WithCompensation]: a bridge writes it to Redis
// once Redis is back. Until then Cancel, Reschedule and Get do not find it.
const Compensated Status = "compensated"

// compensators bounds how many messages of a batch are sent to the broker at once.
const compensators = 16

type compensationOptions struct {
	publish func(ctx context.Context, topic string, headers map[string]string, body []byte) error
	topic   string
}

// WithCompensation hands a message to the broker if Redis is unavailable or
// full: publish sends body to the topic delay.compensation.<queue> of the broker
// behind the queue's sink, and a bridge writes the message to Redis when Redis
// is back. The result's Status is then [Compensated] and its error nil. If
// publish fails too, the error is that of Redis joined with the cause, and also
// [ErrUnknown], because the broker may have the message nevertheless. Repeat the
// call with the same ID and the policy [Keep].
//
// publish must return nil only after the broker has acknowledged the message
// durably, must end with ctx, and must be safe for concurrent use: it is called
// once per message, with at most 16 calls at a time.
//
//   - Kafka: acknowledgements of all replicas; write to the topic.
//   - RabbitMQ: the sink's exchange, the topic as routing key, delivery mode
//     persistent, mandatory, and wait for the confirmation.
//   - NATS: a JetStream publish to the subject, waiting for its ack.
//
// A bridge creates the missing topics or queues when it first starts; until
// then publish should fail rather than drop messages.
//
// Only a call that provably had no effect is compensated, that is, after [ErrUnavailable] and [ErrFull].
// Nothing is sent after any other error, if the caller's ctx has ended, or under the policy [Replace], which
// needs an answer. Redis gets half of the call's time (see [WithTimeout] and the ctx), the broker the rest. A
// due time given by [After] counts from the call: by Redis' clock as last read plus the time since, or by
// this machine's clock if Redis has never answered. Until Redis has answered once, the topic is not checked
// against the broker's rule.
//
// A compensation message is valid for 24 hours: a bridge that gets it later moves
// it to the topic <topic>.dead and logs that. The broker must accept a body a third
// larger than the message's own. If another message has taken the identity by then,
// that one stays, and the compensated one is dropped, counted and logged.
func WithCompensation(publish func(ctx context.Context, topic string, headers map[string]string, body []byte) error) Option {
	return func(o *options) { o.compensation.publish = publish }
}

// WithCompensationTopic replaces the topic delay.compensation.<queue>; the
// bridge must be configured with the same one.
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
	// This call may be the first to read Redis' clock, so subtract what has passed since the call began.
	start := c.queue.Now().Add(-time.Since(began))
	var sending sync.WaitGroup
	slots := make(chan struct{}, compensators)
	for i := range results {
		if ctx.Err() != nil || results[i].Err == nil || !provablyNot(results[i].Err) || c.policy(&requests[i]) == Replace || isNamed(requests[i].Repeat) {
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

// errBoth is the error if neither Redis nor the broker is known to have the message.
// Repeating it is a new call, which may fail as fast.
var errBoth = fmt.Errorf("%w", ErrUnknown)

// provablyNot reports whether err proves that the run did not happen.
func provablyNot(err error) bool {
	return !errors.Is(err, ErrUnknown) && (errors.Is(err, ErrUnavailable) || errors.Is(err, ErrFull))
}

// compensateOne sends one message to the broker.
func (c *Client) compensateOne(ctx context.Context, start time.Time, request *Request, result *Result) {
	when, err := request.When.For(result.Ref).resolve(start)
	if err != nil {
		result.Err = err
		return
	}
	m, err := c.toMessage(&request.Message, result.Ref.ID, false)
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

// tracedToken returns the token of a message that has no row in a database. Its
// end leaves a tombstone nevertheless, so that a second copy changes nothing.
func tracedToken() string {
	var raw [12]byte
	_, _ = rand.Read(raw[:]) // It never fails.
	return (message.TracedMark + base64.RawURLEncoding.EncodeToString(raw[:]))[:message.TokenLength]
}
