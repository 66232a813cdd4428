package webhook

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/sinks"
	"github.com/delaybridge/delaybridge/internal/sinks/overhttp"
)

const (
	// answerMost is how much of an answer is read, so that its connection can be used again;
	// one with a longer answer is closed. answerTimeout bounds the reading: the status has
	// told everything.
	answerMost    = 16 << 10
	answerTimeout = time.Second
	// pauseMost bounds how long an endpoint may have us wait before it is asked again.
	pauseMost = time.Hour
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
	var posting sync.WaitGroup
	defer posting.Wait()
	for _, head := range chains.Heads() {
		posting.Go(func() {
			for i, ok := head, true; ok; {
				i, ok = chains.Settle(i, s.post(ctx, &batch[i]), outcomes)
			}
		})
	}
}

// post posts one message, when its endpoint has a slot for it.
func (s *Sink) post(ctx context.Context, m *message.Message) sinks.Outcome {
	if err := message.CheckTopic(message.Webhook, m.Topic); err != nil {
		return refuse(err)
	}
	e := s.endpoints[m.Topic]
	if e == nil {
		return refuse(errNoEndpoint)
	}
	if ctx.Err() != nil {
		return refuse(context.Cause(ctx))
	}
	if refusal, ok := e.Take(ctx, s.timeout); !ok {
		return refusal
	}
	defer e.Release()
	return e.post(ctx, m, s.timeout)
}

// post makes the request.
func (e *endpoint) post(caller context.Context, m *message.Message, timeout time.Duration) sinks.Outcome {
	ctx, attempt := overhttp.Begin(caller, timeout)
	defer attempt.End()
	request, err := e.request(ctx, m, time.Now())
	if err != nil {
		return refuse(err)
	}
	answer, err := e.client.Do(request)
	if err != nil {
		outcome := classify(overhttp.Explain(ctx, e.files, err), attempt.Sent())
		if caller.Err() == nil { // Else it says nothing of the endpoint.
			e.Failed(outcome)
		}
		return outcome
	}
	attempt.Within(answerTimeout)
	_, _ = io.CopyN(io.Discard, answer.Body, answerMost) // Whatever it says.
	_ = answer.Body.Close()
	if answer.StatusCode/100 == 2 { //nolint:mnd // success, as RFC 9110 has it
		e.Answered(sinks.Acked(), 0)
		return sinks.Acked()
	}
	outcome := classify(&answerError{e.name, answer.StatusCode}, overhttp.Used)
	e.Answered(outcome, pauseOf(answer, time.Now()))
	return outcome
}

// pauseOf is for how long the endpoint wants no requests, in an answer that may ask for that: in
// seconds, or until an instant.
func pauseOf(answer *http.Response, now time.Time) time.Duration {
	if answer.StatusCode != http.StatusTooManyRequests && answer.StatusCode < http.StatusInternalServerError {
		return 0
	}
	text := strings.TrimSpace(answer.Header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, pauseMost)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(0, at.Sub(now)), pauseMost)
	}
	return 0
}
