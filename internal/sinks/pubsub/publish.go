package pubsub

import (
	"context"
	"net/http"
	"slices"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/overhttp"
)

// bytesMost bounds a request of several messages, as its text. One message may be larger. Pub/Sub
// takes 10 MB; less is on its way at once over a slow link.
const bytesMost = 32 << 10

// Publish implements [sinks.Sink]. Of each chain one request is under way.
func (s *Sink) Publish(ctx context.Context, batch []message.Message, outcomes *sinks.Outcomes) {
	ctx, end, err := s.calls.Begin(ctx)
	if err != nil {
		outcomes.Rest(refuse(err))
		return
	}
	defer end()
	chains := sinks.NewChains(batch)
	overhttp.EachTopic(batch, chains, func(topic string, heads []int) {
		slots, done := s.topics.Use(topic)
		defer done()
		r := &run{sink: s, topic: topic, slots: slots, batch: batch, chains: chains, outcomes: outcomes}
		overhttp.Requests(s.config.requests(), heads, r.next, func(pieces []piece) []int { return r.send(ctx, pieces) })
	})
}

// run is what a call has for one topic.
type run struct {
	sink     *Sink
	topic    string
	slots    *overhttp.Slots
	batch    []message.Message
	chains   *sinks.Chains
	outcomes *sinks.Outcomes
}

// piece is what a request has of one chain.
type piece struct {
	entries []entry
	// next is the message behind them, if there is one.
	next    int
	hasNext bool
}

// next takes one request from the chains whose next messages are ready. What can never be sent is settled.
func (r *run) next(ready []int) (pieces []piece, rest []int) {
	count, size := 0, 0
	for len(ready) > 0 {
		p, isFull := r.take(ready[0], &count, &size)
		switch {
		case len(p.entries) > 0: // What is behind them waits for the answer.
			pieces, ready = append(pieces, p), ready[1:]
		case p.hasNext:
			ready[0] = p.next
		default:
			ready = ready[1:]
		}
		if isFull {
			break
		}
	}
	return pieces, ready
}

// take takes what still fits of a chain, from a message on.
func (r *run) take(index int, count, size *int) (p piece, isFull bool) {
	for ok := true; ok; index, ok = r.chains.Next(index) {
		e, err := newEntry(&r.batch[index], index)
		switch {
		case err != nil:
			r.outcomes.Report(index, refuse(err))
		case *count == messagesMost || *count > 0 && *size+len(e.text) > bytesMost:
			p.next, p.hasNext = index, true
			return p, true
		default:
			*count, *size, p.entries = *count+1, *size+len(e.text), append(p.entries, e)
		}
	}
	return p, false
}

// send makes one request when there is a slot, and returns the messages that are ready then.
func (r *run) send(ctx context.Context, pieces []piece) (ready []int) {
	var entries []entry
	for _, p := range pieces {
		entries = append(entries, p.entries...)
	}
	outcomes := r.hold(ctx, entries)
	for n, e := range entries {
		r.outcomes.Report(e.index, outcomes[n])
	}
	for _, p := range pieces {
		of := outcomes[:len(p.entries)]
		outcomes = outcomes[len(p.entries):]
		if failed := firstOpen(of); failed >= 0 {
			r.chains.Settle(p.entries[failed].index, of[failed], r.outcomes) // What is behind it must not be sent.
		} else if p.hasNext {
			ready = append(ready, p.next)
		}
	}
	return ready
}

// firstOpen is the first message that was not dealt with by itself, -1 if there is none.
func firstOpen(outcomes []sinks.Outcome) int {
	return slices.IndexFunc(outcomes, func(o sinks.Outcome) bool { return !o.IsAnswer() })
}

// hold has a slot while it sends the entries, and returns an outcome for each.
func (r *run) hold(ctx context.Context, entries []entry) []sinks.Outcome {
	if ctx.Err() != nil {
		return slices.Repeat([]sinks.Outcome{refuse(context.Cause(ctx))}, len(entries))
	}
	refusal, ok := r.slots.Take(ctx, r.sink.config.timeout())
	if !ok {
		return slices.Repeat([]sinks.Outcome{refusal}, len(entries))
	}
	defer r.slots.Release()
	return r.request(ctx, entries)
}

// request makes a request. If Pub/Sub refuses it for one of its messages, nothing of it is stored, and
// each half is sent by itself: the second after the first, whose Keys it may have.
func (r *run) request(ctx context.Context, entries []entry) []sinks.Outcome {
	outcomes, isStored := r.handOver(ctx, entries)
	if isStored || len(entries) == 1 || !outcomes[0].IsAnswer() {
		return outcomes
	}
	half := len(entries) / 2
	outcomes = r.request(ctx, entries[:half])
	failed := firstOpen(outcomes)
	if failed < 0 {
		return append(outcomes, r.request(ctx, entries[half:])...)
	}
	rest := outcomes[failed]
	rest.Class, rest.OfRoute = sinks.Unavailable, false
	return append(outcomes, slices.Repeat([]sinks.Outcome{rest}, len(entries)-half)...)
}

// handOver makes one request. isStored says that each message has a place; else they have one outcome.
func (r *run) handOver(ctx context.Context, entries []entry) (outcomes []sinks.Outcome, isStored bool) {
	var stored struct {
		MessageIDs []string `json:"messageIds"`
	}
	how, err := r.sink.call(ctx, http.MethodPost, r.sink.config.topicPath(r.topic)+":publish", requestOf(entries), &stored)
	if err == nil && (len(stored.MessageIDs) != len(entries) || slices.Contains(stored.MessageIDs, "")) {
		err = errNoAnswer
	}
	if err == nil {
		r.slots.Answered(sinks.Acked(), 0)
		for _, id := range stored.MessageIDs {
			outcomes = append(outcomes, sinks.Outcome{Class: sinks.Acknowledged, Place: sinks.Place{IsKnown: true, Entry: id}})
		}
		return outcomes, true
	}
	outcome := classify(err, how)
	switch {
	case ctx.Err() != nil: // It says nothing of the topic.
	case outcome.IsAnswer():
		r.slots.Answered(outcome, 0)
	default:
		r.slots.Failed(outcome)
	}
	return slices.Repeat([]sinks.Outcome{outcome}, len(entries)), false
}
