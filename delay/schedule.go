package delay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/seal"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/tracing"
)

// Schedule accepts a message that is published when it is due.
//
// Its errors are [ErrDuplicate], [ErrTooLate] under the policy Replace,
// [ErrInvalid], [ErrNoLayout], [ErrFull], [ErrUnavailable], [ErrUnknown], and
// [ErrNotDurable] (the message is scheduled nevertheless). For the options see
// [Repeat].
func (c *Client) Schedule(ctx context.Context, m Message, when When, opts ...CallOption) (Result, error) {
	// An error of the batch is the item's, too.
	results, _ := c.ScheduleBatch(ctx, []Request{{Message: m, When: when, Repeat: repeated(opts)}})
	return results[0], results[0].Err
}

// ScheduleBatch schedules several messages and returns one result for each, by index. An
// item's error is that of [Client.Schedule] and does not fail the others. The batch is not
// atomic: messages that replace others (see [Request]) are scheduled after the rest. The
// returned error is that of the whole batch, if no item could be tried.
func (c *Client) ScheduleBatch(ctx context.Context, requests []Request) ([]Result, error) {
	ctx, span := c.spans.Begin(ctx)
	var results []Result
	var err error
	compensates := func(r Request) bool { return c.policy(&r) != Replace }
	if c.compensation.publish != nil && slices.ContainsFunc(requests, compensates) {
		results, err = c.scheduleOrCompensate(ctx, requests)
	} else {
		results, err = c.schedule(ctx, requests)
	}
	tracing.End(span, len(results), func(i int) tracing.Item {
		r := &results[i]
		return tracing.Item{Topic: requests[i].Message.Topic, ID: r.Ref.ID, Status: string(r.Status), DueAt: r.DueAt, Err: r.Err}
	})
	return results, err
}

func (c *Client) schedule(ctx context.Context, requests []Request) ([]Result, error) {
	ctx, cancel := c.begin(ctx)
	defer cancel()
	results := make([]Result, len(requests))
	earlier := make([]*store.UnknownCall, len(requests))
	for i := range requests {
		results[i].Ref, earlier[i], results[i].Err = c.identity(ctx, &requests[i])
	}
	layout, err := c.layout(ctx)
	if err != nil {
		for i := range results {
			if results[i].Err == nil {
				results[i].Err = earlier[i].Still(err)
			}
		}
		return results, err
	}
	accepted, at := c.check(ctx, layout, requests, results)
	if len(accepted) == 0 {
		return results, nil
	}
	for _, replace := range []bool{false, true} {
		var list []store.Request
		var places []int
		for n, i := range at {
			if replace == (c.policy(&requests[i]) == Replace) {
				accepted[n].Earlier = earlier[i]
				list, places = append(list, accepted[n]), append(places, i)
			}
		}
		if len(list) == 0 {
			continue
		}
		answers := c.queue.Schedule(ctx, list, replace, c.confirm)
		if replace {
			c.debounce(ctx, list, answers)
		}
		for n, answer := range answers {
			c.scheduled(&results[places[n]], c.policy(&requests[places[n]]), answer)
		}
	}
	return results, nil
}

// debounce repeats what met a message in flight though it has a [When.MaxWait], until that one has ended or ctx ends.
func (c *Client) debounce(ctx context.Context, list []store.Request, answers []store.Answer) {
	for {
		var late []store.Request
		var places []int
		for i := range list {
			if r := list[i]; r.When.MaxWait > 0 && r.Earlier == nil && answers[i].Err == nil && answers[i].Code == store.InFlight {
				late, places = append(late, r), append(places, i)
			}
		}
		if len(late) == 0 {
			return
		}
		if store.RestUntilAgain(ctx, time.Now()); ctx.Err() != nil {
			return
		}
		for n, answer := range c.queue.Schedule(ctx, late, true, c.confirm) {
			answers[places[n]] = newest(answers[places[n]], answer)
		}
	}
}

// newest is what a repeated call knows after its next run. Where that certainly did not happen, as when the time
// was over, the answer before it holds.
func newest(before, next store.Answer) store.Answer {
	if errors.Is(next.Err, store.ErrUnavailable) {
		return before
	}
	return next
}

// identity returns the message's identity, and the call that the request repeats, if any.
func (c *Client) identity(ctx context.Context, r *Request) (Ref, *store.UnknownCall, error) {
	verb := verbSchedule
	if c.policy(r) == Replace {
		verb = verbReplace
	}
	ref := Ref{ID: r.Message.ID, Key: r.Message.Key}
	earlier, err := c.earlier(ctx, r.Repeat, verb, ref)
	if !r.Conflict.isKnown() {
		err = invalidConflict(r.Conflict)
	}
	switch {
	case ref.ID != "":
	case earlier != nil:
		ref.ID = earlier.ID
	default:
		ref.ID = ulid.Make().String()
	}
	return ref, earlier, err
}

// check validates the requests and returns the valid ones with their places.
func (c *Client) check(ctx context.Context, layout *store.Layout, requests []Request, results []Result) (accepted []store.Request, at []int) {
	maxSize := layout.MaxMessage
	if c.maxSize > 0 {
		maxSize = min(maxSize, c.maxSize)
	}
	now := c.queue.Now()
	accepted, at = make([]store.Request, 0, len(requests)), make([]int, 0, len(requests))
	messages := make([]message.Message, len(requests))
	for i := range requests {
		if errors.Is(results[i].Err, ErrInvalid) || errors.Is(results[i].Err, ErrForgotten) {
			continue
		}
		request := store.Request{Message: &messages[i]}
		var err error
		if messages[i], err = c.toMessage(&requests[i].Message, results[i].Ref.ID, requests[i].When.maxWait != 0); err == nil {
			c.spans.Mark(ctx, &messages[i], maxSize)
			err = request.Message.Validate(layout.Sink, maxSize)
		}
		if err == nil {
			err = layout.Rules.Topics.Check(request.Message.Topic)
		}
		if err == nil {
			if when, ref := requests[i].When, results[i].Ref; c.policy(&requests[i]) == Replace {
				request.When, err = when.replacing(ref, now)
			} else {
				request.When, err = when.For(ref).resolve(now)
			}
		} else {
			err = fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		if err != nil {
			results[i].Err = err
			continue
		}
		accepted, at = append(accepted, request), append(at, i)
	}
	return accepted, at
}

// toMessage returns the message as it is stored: sealed, if the client has keys.
func (c *Client) toMessage(m *Message, id string, isBounded bool) (message.Message, error) {
	headers, err := m.headers(isBounded)
	stored := message.Message{Queue: c.queue.Name(), ID: id, Key: m.Key, Topic: m.Topic, Headers: headers, Body: m.Body}
	if err == nil {
		err = seal.Seal(c.extras.keys, &stored)
	}
	return stored, err
}

// scheduled turns the store's answer into a result.
func (c *Client) scheduled(result *Result, conflict Conflict, answer store.Answer) {
	result.DueAt = answer.DueAt
	switch {
	case answer.Err != nil:
		result.DueAt, result.Err = time.Time{}, failed(answer.Err)
	case answer.Code == store.Created:
		result.Status = Created
	case answer.Code == store.Replaced:
		result.Status = Replaced
	case answer.Code == store.Dead:
		result.Err = fmt.Errorf("%w: in the dead letters: %s", ErrDuplicate, answer.Reason)
	case answer.Code == store.OtherTopic && conflict == Reject:
		result.Err = fmt.Errorf("%w: %w", ErrDuplicate, store.ErrOtherTopic)
	case answer.Code == store.OtherTopic:
		result.Err = store.ErrOtherTopic
	case answer.Code == store.InFlight && conflict == Replace:
		result.Err = ErrTooLate
	case conflict == Keep:
		result.Status = Existing
	case answer.Code == store.InFlight:
		result.Err = fmt.Errorf("%w: it is in flight", ErrDuplicate)
	default:
		result.Err = fmt.Errorf("%w: it waits until %s", ErrDuplicate, answer.DueAt.UTC().Format(message.TimeFormat))
	}
	if answer.NotDurable && answer.Err == nil {
		result.Err = errors.Join(result.Err, notDurable(answer))
	}
}
