package api

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// schedules has the calls that schedule.
type schedules struct{ *core }

func (s *schedules) register() {
	register(s.core, operation{
		id: "schedule", method: http.MethodPost, path: "/queues/{queue}/messages", roles: producers,
		summary: "Schedule a message", status: http.StatusCreated, body: oneLimits,
	}, s.schedule)
	register(s.core, operation{
		id: "scheduleBatch", method: http.MethodPost, path: "/queues/{queue}/messages:batch", roles: producers,
		summary: "Schedule messages, each for itself: one result an item, by index", body: batchLimits,
	}, s.scheduleBatch)
}

type scheduleInput struct {
	QueueParam
	IdempotencyParam

	Body operate.Schedule
}

type scheduleOutput struct {
	ReplayHeader

	Location string `header:"Location" doc:"Where the message is."`
	Body     operate.ScheduleResult
}

func (s *schedules) schedule(ctx context.Context, in *scheduleInput) (*scheduleOutput, error) {
	results, replayed, err := s.scheduleOnce(ctx, in.Queue, "schedule", []operate.Schedule{in.Body})
	if err != nil {
		return nil, err
	}
	result := results[0]
	made := inspect.Change{Action: "schedule", What: result.ID, Key: result.Key, Topic: in.Body.Topic, Answer: result.Answer()}
	s.auditedCall(ctx, in.Queue, made, nil)
	if result.Error != nil {
		p := problem(result.Error)
		p.ID, p.DueAt = result.ID, result.DueAt
		return nil, p
	}
	return &scheduleOutput{replayed, locate(in.Queue, delay.Ref{ID: result.ID, Key: result.Key}), result}, nil
}

// locate is where a message is, below the API.
func locate(queue string, ref delay.Ref) string {
	// The mux takes what is no name for a way: see router.ServeHTTP.
	id := strings.ReplaceAll(url.PathEscape(ref.ID), ".", "%2E")
	where := base + "/queues/" + url.PathEscape(queue) + "/messages/" + id
	if ref.Key != "" {
		where += "?key=" + url.QueryEscape(ref.Key)
	}
	return where
}

type batchInput struct {
	QueueParam
	IdempotencyParam

	Body struct {
		Messages []operate.Schedule `json:"messages" minItems:"1" maxItems:"1000" nullable:"false"`
	}
}

type batchOutput struct {
	ReplayHeader

	Body struct {
		Results []operate.ScheduleResult `json:"results" nullable:"false"`
	}
}

func (s *schedules) scheduleBatch(ctx context.Context, in *batchInput) (*batchOutput, error) {
	results, replayed, err := s.scheduleOnce(ctx, in.Queue, "scheduleBatch", in.Body.Messages)
	if err != nil {
		return nil, err
	}
	out := &batchOutput{ReplayHeader: replayed}
	out.Body.Results = results
	t := operate.Tally{}
	for i := range out.Body.Results {
		t[out.Body.Results[i].Answer()]++
	}
	s.auditedCall(ctx, in.Queue, inspect.Change{Action: "schedule", Answer: t.String()}, nil)
	return out, nil
}

// scheduleAll schedules what the caller may. The topic of a message in whose place one would
// be, the script looks at.
func (s *schedules) scheduleAll(ctx context.Context, queue string, messages []operate.Schedule) []operate.ScheduleResult {
	caller := callOf(ctx)
	return queuesOf(ctx)[queue].ScheduleAll(ctx, messages, func(i int) error {
		if !caller.MaySee(messages[i].Topic) {
			return forbidden(caller.Name + " may not use the topic " + messages[i].Topic)
		}
		return nil
	})
}
