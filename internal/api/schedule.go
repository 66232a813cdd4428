package api

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/config"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// scheduling has the calls that schedule.
type scheduling struct{ *core }

func (s *scheduling) register() {
	register(s.core, operation{
		id: "schedule", method: http.MethodPost, path: "/queues/{queue}/messages", roles: producers,
		summary: "Schedule a message", status: http.StatusCreated, body: oneLimits,
	}, s.schedule)
	register(s.core, operation{
		id: "scheduleBatch", method: http.MethodPost, path: "/queues/{queue}/messages:batch", roles: producers,
		summary: "Schedule messages, each for itself: one result an item, by index", body: batchLimits,
	}, s.scheduleBatch)
}

// Schedule is a message to be scheduled.
type Schedule struct {
	When

	ID         string            `json:"id,omitempty" doc:"Names the message within its key. Without it, a new one is made." example:"order-42/timeout"`
	Key        string            `json:"key,omitempty" doc:"Messages of one key and topic are published in due order."`
	Topic      string            `json:"topic" doc:"Where it is published: Kafka topic, RabbitMQ routing key, NATS subject." example:"order.timeout"`
	Headers    map[string]string `json:"headers,omitempty" doc:"They pass through unchanged."`
	Body       string            `json:"body,omitempty" doc:"The payload, as text."`
	BodyBase64 string            `json:"body_base64,omitempty" doc:"The payload in base64, in the place of body."`
	Tags       []string          `json:"tags,omitempty" doc:"What the message belongs to: at most 8, by which it is found."`
	Late       *Late             `json:"late,omitempty" doc:"How late it may be published; without it the queue's setting holds."`
	Conflict   string            `json:"conflict,omitempty" enum:"reject,keep,replace" doc:"What to do where the identity is taken; reject by default."`

	call error // that it is, under an idempotency key; see store.Once
}

// Late says how late a message may be published, and what becomes of it where it is later.
type Late struct {
	After string `json:"after,omitempty" doc:"So long after its due time: 30m, 1d. 1ms or more, but for publish." example:"1h"`
	Then  string `json:"then" enum:"publish,dead,drop" doc:"What becomes of it after that: it is published all the same, goes to the dead letters, or is dropped, counted and logged."`
}

func (l *Late) parse() (delay.Late, error) {
	if l == nil {
		return delay.Late{}, nil
	}
	late := delay.Late{Then: delay.LateAction(l.Then)}
	if l.After == "" {
		return late, nil
	}
	var err error
	if late.After, err = config.ParseDuration(l.After); err != nil {
		return late, invalid("late.after", "late.after "+err.Error())
	}
	return late, nil
}

// When says when a message is due.
type When struct {
	In string `json:"in,omitempty" doc:"Due so long from now, by Redis' clock: 500ms, 30m, 2d. This or at." example:"30m"`
	At string `json:"at,omitempty" doc:"Due at that instant, RFC 3339. This or in." example:"2027-01-31T09:00:00.000Z"`
	// Spread is added by the message's identity, so a repetition has the same due time.
	Spread string `json:"spread,omitempty" doc:"Due up to so long after that, by the message's id and key: the same for the same message every time." example:"10m"`
}

// parse is the due time for the SDK.
func (w When) parse() (delay.When, error) {
	when, err := w.instant()
	if err != nil || w.Spread == "" {
		return when, err
	}
	over, err := config.ParseDuration(w.Spread)
	if err != nil {
		return delay.When{}, invalid("spread", "spread "+err.Error())
	}
	return when.Spread(over), nil
}

// parseDelay reads how long from now something is due. What should be due in the past, as
// a time may be that has passed meanwhile, is a mistake as a delay.
func parseDelay(field, text string) (time.Duration, error) {
	d, err := config.ParseDuration(text)
	if err != nil {
		return 0, invalid(field, field+" "+err.Error())
	}
	if d < 0 {
		return 0, invalid(field, fmt.Sprintf("%s %q: must be 0s or more", field, text))
	}
	return d, nil
}

// asSent is what the caller calls the SDK's field.
func (w When) asSent(field string) string {
	switch {
	case field == "due" && w.In != "":
		return "in"
	case field == "due":
		return "at"
	case field == "header" || field == "tag":
		return field + "s"
	}
	return field
}

func (w When) instant() (delay.When, error) {
	switch {
	case (w.In == "") == (w.At == ""):
		return delay.When{}, invalid("in", "give in or at, and not both")
	case w.In != "":
		d, err := parseDelay("in", w.In)
		return delay.After(d), err
	}
	at, err := time.Parse(time.RFC3339, w.At)
	if err != nil {
		return delay.When{}, invalid("at", "at is not a time: give RFC 3339, as 2027-01-31T09:00:00.000Z")
	}
	return delay.At(at), nil
}

var conflicts = map[string]delay.Conflict{"": delay.Reject, "reject": delay.Reject, "keep": delay.Keep, "replace": delay.Replace}

// parse is the message for the SDK.
func (s *Schedule) parse() (delay.Request, error) {
	when, err := s.When.parse()
	if err != nil {
		return delay.Request{}, err
	}
	body := []byte(s.Body)
	switch {
	case s.BodyBase64 == "":
	case s.Body != "":
		return delay.Request{}, invalid("body_base64", "give body or body_base64, and not both")
	default:
		if body, err = base64.StdEncoding.DecodeString(s.BodyBase64); err != nil {
			return delay.Request{}, invalid("body_base64", "body_base64 is not base64, with + and / and padding")
		}
	}
	late, err := s.Late.parse()
	if err != nil {
		return delay.Request{}, err
	}
	return delay.Request{
		Message: delay.Message{ID: s.ID, Key: s.Key, Topic: s.Topic, Headers: s.Headers, Body: body, Tags: s.Tags, Late: late}, When: when, Repeat: s.call,
	}, nil
}

// Scheduled is what became of a message that was to be scheduled.
type Scheduled struct {
	ID     string `json:"id,omitempty"`
	Key    string `json:"key"`
	DueAt  string `json:"due_at,omitempty" format:"date-time" doc:"When it is due, by Redis' clock."`
	Status string `json:"status,omitempty" enum:"created,replaced,existing"`
	// NotDurable is told by the API; commands tell an error.
	NotDurable bool `json:"not_durable,omitempty" doc:"Done, but not confirmed in time as the queue's durability asks."`
	// Error is there in a batch.
	Error *Problem `json:"error,omitempty" doc:"Why it was not scheduled."`
}

type scheduleInput struct {
	QueueParam
	IdempotencyParam

	Body Schedule
}

type scheduleOutput struct {
	Replayed

	Location string `header:"Location" doc:"Where the message is."`
	Body     Scheduled
}

func (s *scheduling) schedule(ctx context.Context, in *scheduleInput) (*scheduleOutput, error) {
	results, replayed, err := s.scheduleOnce(ctx, in.Queue, "schedule", []Schedule{in.Body})
	if err != nil {
		return nil, err
	}
	result := results[0]
	s.auditedCall(ctx, in.Queue, change{action: "schedule", id: result.ID, key: result.Key, topic: in.Body.Topic, answer: result.answer()})
	if result.Error != nil {
		result.Error.ID, result.Error.DueAt = result.ID, result.DueAt
		return nil, result.Error
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

func (s *Scheduled) answer() string {
	if s.Error != nil {
		return s.Error.Code
	}
	return s.Status
}

type batchInput struct {
	QueueParam
	IdempotencyParam

	Body struct {
		Messages []Schedule `json:"messages" minItems:"1" maxItems:"1000" nullable:"false"`
	}
}

type batchOutput struct {
	Replayed

	Body struct {
		Results []Scheduled `json:"results" nullable:"false"`
	}
}

func (s *scheduling) scheduleBatch(ctx context.Context, in *batchInput) (*batchOutput, error) {
	results, replayed, err := s.scheduleOnce(ctx, in.Queue, "scheduleBatch", in.Body.Messages)
	if err != nil {
		return nil, err
	}
	out := &batchOutput{Replayed: replayed}
	out.Body.Results = results
	t := tally{}
	for i := range out.Body.Results {
		t[out.Body.Results[i].answer()]++
	}
	s.auditedCall(ctx, in.Queue, change{action: "schedule", answer: t.String()})
	return out, nil
}

func (s *scheduling) scheduleAll(ctx context.Context, queue string, messages []Schedule) []Scheduled {
	may := func(m *Schedule) error { return mayPut(ctx, m) }
	results := ScheduleAll(ctx, s.config.Queues[queue].Clients, messages, may)
	for i := range results {
		if p := results[i].Error; p != nil && p.Code == codeNotDurable { // It is done.
			results[i].NotDurable, results[i].Error = true, nil
		} else if p != nil {
			p.Field = messages[i].asSent(p.Field)
		}
	}
	return results
}

// ScheduleAll schedules messages, those of one policy together, and returns a result an
// item, by index. may refuses some of them.
func ScheduleAll(ctx context.Context, clients map[delay.Conflict]*delay.Client, messages []Schedule, may func(*Schedule) error) []Scheduled {
	results := make([]Scheduled, len(messages))
	requests := map[delay.Conflict][]delay.Request{}
	places := map[delay.Conflict][]int{}
	for i := range messages {
		m := &messages[i]
		results[i].ID, results[i].Key = m.ID, m.Key
		if err := may(m); err != nil {
			results[i].Error = problem(err)
			continue
		}
		request, err := m.parse()
		if err != nil {
			results[i].Error = problem(err)
			continue
		}
		conflict := conflicts[m.Conflict]
		requests[conflict], places[conflict] = append(requests[conflict], request), append(places[conflict], i)
	}
	for conflict, batch := range requests {
		answers, _ := clients[conflict].ScheduleBatch(ctx, batch) // Its error is each one's, too.
		for n, answer := range answers {
			results[places[conflict][n]] = scheduled(answer)
		}
	}
	return results
}

// mayPut refuses a topic that the caller may not use. That of a message in whose place
// this one would be, the script looks at.
func mayPut(ctx context.Context, m *Schedule) error {
	if caller := callOf(ctx); !caller.MaySee(m.Topic) {
		return forbidden(caller.Name + " may not use the topic " + m.Topic)
	}
	return nil
}

func scheduled(answer delay.Result) Scheduled {
	s := Scheduled{ID: answer.Ref.ID, Key: answer.Ref.Key, DueAt: stamp(answer.DueAt), Status: string(answer.Status)}
	if answer.Err != nil {
		s.Error = problem(answer.Err)
	}
	return s
}

// stamp is a time as the API has it; empty where it is not known.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(message.TimeFormat)
}
