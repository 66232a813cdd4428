package sqs

import (
	"context"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/overhttp"
)

const (
	// entriesMost is how many messages SQS takes in a request.
	entriesMost = 10
	// bytesMost bounds a request of several messages. One message may be larger. SQS takes 1 MiB, and
	// counts each begun 64 KiB as a request; less is on its way at once over a slow link.
	bytesMost = 64 << 10
)

// Publish implements [sinks.Sink]. Of each chain one message is under way.
func (s *Sink) Publish(ctx context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	ctx, end, err := s.calls.Begin(ctx)
	if err != nil {
		outcomes.Rest(refuse(err))
		return
	}
	defer end()
	chains := sinks.NewChains(batch)
	overhttp.EachTopic(batch, chains, func(topic string, heads []int) {
		queue, done := s.queues.Use(topic)
		defer done()
		r := &run{sink: s, queue: queue, batch: batch, chains: chains, outcomes: outcomes}
		overhttp.Requests(s.config.requests(), heads, r.next, func(entries []entry) []int { return r.send(ctx, entries) })
	})
}

// run is what a call has for one queue.
type run struct {
	sink     *Sink
	queue    *queue
	batch    []message.Message
	chains   *sinks.Chains
	outcomes *sinks.Outcomes
}

// next makes the entries of one request. What can never be sent is settled, which makes others ready.
func (r *run) next(ready []int) (entries []entry, rest []int) {
	size := 0
	for len(ready) > 0 && len(entries) < entriesMost {
		e := newEntry(&r.batch[ready[0]], ready[0])
		if size += e.size; size > bytesMost && len(entries) > 0 {
			break
		}
		index := ready[0]
		ready = ready[1:]
		if err := r.wrong(&e); err == nil {
			entries = append(entries, e)
		} else if next, ok := r.chains.Settle(index, refuse(err), r.outcomes); ok {
			ready = append(ready, next)
		}
	}
	return entries, ready
}

// wrong is why SQS could never take a message.
func (r *run) wrong(e *entry) error {
	if err := message.CheckTopic(message.SQS, r.queue.name); err != nil {
		return err
	}
	if e.size > sizeMost {
		return &overhttp.TooLargeError{Service: service, Size: e.size, Most: sizeMost}
	}
	return nil
}

// send makes one request when there is a slot, and returns the messages that are ready then.
func (r *run) send(ctx context.Context, entries []entry) (ready []int) {
	outcomes := r.sink.send(ctx, r.queue, entries)
	for n, e := range entries {
		if next, ok := r.chains.Settle(e.index, outcomes[n], r.outcomes); ok {
			ready = append(ready, next)
		}
	}
	return ready
}

// send returns an outcome for each entry. If SQS refuses the request for one of them, each is sent alone.
func (s *Sink) send(ctx context.Context, q *queue, entries []entry) []sinks.Outcome {
	if ctx.Err() != nil {
		return slices.Repeat([]sinks.Outcome{refuse(context.Cause(ctx))}, len(entries))
	}
	refusal, ok := q.Take(ctx, s.config.timeout())
	if !ok {
		return slices.Repeat([]sinks.Outcome{refusal}, len(entries))
	}
	defer q.Release()
	outcomes, whole := s.request(ctx, q, entries)
	if whole && len(entries) > 1 && (outcomes[0].Class == sinks.Permanent || outcomes[0].Class == sinks.Retryable) {
		for n := range entries {
			alone, _ := s.request(ctx, q, entries[n:n+1])
			outcomes[n] = alone[0]
		}
	}
	return outcomes
}

// request makes one request. whole says that the outcomes are one, of the request.
func (s *Sink) request(ctx context.Context, q *queue, entries []entry) (outcomes []sinks.Outcome, whole bool) {
	answer, outcome := s.handOver(ctx, q, entries)
	if answer == nil {
		if outcome.Reason == sinks.ReasonTopicMissing {
			q.learn("")
		}
		switch {
		case ctx.Err() != nil: // It says nothing of the queue.
		case outcome.IsAnswer():
			q.Answered(outcome, 0)
		default:
			q.Failed(outcome)
		}
		return slices.Repeat([]sinks.Outcome{outcome}, len(entries)), true
	}
	q.Answered(sinks.Acked(), 0)
	return outcomesOf(answer, entries), false
}

// handOver hands the entries over; without an answer to each there is one outcome for all.
func (s *Sink) handOver(ctx context.Context, q *queue, entries []entry) (*sqs.SendMessageBatchOutput, sinks.Outcome) {
	address := q.known()
	if address == "" {
		var how overhttp.Sent
		var err error
		if address, how, err = s.ask(ctx, q.name); err != nil {
			return nil, refuseAsked(err, how)
		}
		q.learn(address)
	}
	list := make([]types.SendMessageBatchRequestEntry, len(entries))
	for n, e := range entries {
		list[n] = e.SendMessageBatchRequestEntry
	}
	ctx, attempt := overhttp.Begin(ctx, s.config.timeout())
	defer attempt.End()
	if err := s.login(ctx); err != nil {
		return nil, refuse(err)
	}
	answer, err := s.client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &address, Entries: list})
	if err != nil {
		return nil, classify(overhttp.Explain(ctx, s.config.files(), err), attempt.Sent())
	}
	return answer, sinks.Outcome{}
}

// outcomesOf are those of the entries; one of which the answer tells nothing is Unknown.
func outcomesOf(answer *sqs.SendMessageBatchOutput, entries []entry) []sinks.Outcome {
	outcomes, byID := make([]sinks.Outcome, len(entries)), map[string]int{}
	for n, e := range entries {
		outcomes[n] = sinks.Failed(sinks.Unknown, sinks.ReasonBroker, errNoAnswer)
		byID[strconv.Itoa(e.index)] = n
	}
	for _, stored := range answer.Successful {
		if n, ok := byID[text(stored.Id)]; ok && text(stored.MessageId) != "" {
			outcomes[n] = sinks.Acked()
		}
	}
	for _, refused := range answer.Failed {
		if n, ok := byID[text(refused.Id)]; ok {
			outcomes[n] = ofEntry(refused)
		}
	}
	return outcomes
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
