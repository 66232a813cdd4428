package operate

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/config"
)

// Schedule is a message to be scheduled.
type Schedule struct {
	When

	ID         string            `json:"id,omitempty" doc:"Identifies the message within its key. Without it, a new one is made." example:"order-42/timeout"`
	Key        string            `json:"key,omitempty" doc:"Messages of one key and topic are published in due order."`
	Topic      string            `json:"topic" doc:"Where it is published: Kafka topic, RabbitMQ routing key, NATS subject." example:"order.timeout"`
	Headers    map[string]string `json:"headers,omitempty" doc:"Headers for the consumer, passed through unchanged."`
	Body       string            `json:"body,omitempty" doc:"The payload, as text."`
	BodyBase64 string            `json:"body_base64,omitempty" doc:"The payload in base64, instead of body."`
	Tags       []string          `json:"tags,omitempty" doc:"Labels by which related messages are found: at most 8."`
	Late       *Late             `json:"late,omitempty" doc:"How late it may be published; the default is the queue's setting."`
	Conflict   string            `json:"conflict,omitempty" enum:"reject,keep,replace" doc:"What to do if the identity is taken; reject by default."`
	MaxWait    string            `json:"max_wait,omitempty" doc:"With in and conflict replace: it is due at most this long after the first of the messages that replace one another." example:"1h"`

	// Call says that it is under an idempotency key, see [store.Once].
	Call error `json:"-"`
}

// Late says how late a message may be published, and what becomes of it where it is later.
type Late struct {
	After string `json:"after,omitempty" doc:"Time after its due time: 30m, 1d. At least 1ms, except with publish." example:"1h"`
	Then  string `json:"then" enum:"publish,dead,drop" doc:"What happens to it after that: it is published nevertheless, goes to the dead letters, or is dropped, counted and logged."`
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
	late.After, err = parseDuration("late.after", l.After)
	return late, err
}

// When says when a message is due.
type When struct {
	In string `json:"in,omitempty" doc:"Delay from now, by Redis' clock: 500ms, 30m, 2d. Either in or at." example:"30m"`
	At string `json:"at,omitempty" doc:"The due time, RFC 3339. Either at or in." example:"2027-01-31T09:00:00.000Z"`
	// Spread is added by the message's identity, so a repetition has the same due time.
	Spread string `json:"spread,omitempty" doc:"Adds up to this duration to the due time, by a hash of the message's id and key, so it is the same every time." example:"10m"`
}

// Parse is the due time for the SDK.
func (w When) Parse() (delay.When, error) {
	when, err := w.instant()
	if err != nil || w.Spread == "" {
		return when, err
	}
	over, err := parseDuration("spread", w.Spread)
	if err != nil {
		return delay.When{}, err
	}
	return when.Spread(over), nil
}

// ParseDelay reads how long from now something is due. What should be due in the past, as
// a time may be that has passed meanwhile, is a mistake as a delay.
func ParseDelay(field, text string) (time.Duration, error) {
	d, err := parseDuration(field, text)
	if err != nil {
		return 0, err
	}
	if d < 0 {
		return 0, Invalid(field, fmt.Sprintf("%s %q: must be 0s or more", field, text))
	}
	return d, nil
}

// parseDuration reads the duration of a field.
func parseDuration(field, text string) (time.Duration, error) {
	d, err := config.ParseDuration(text)
	if err != nil {
		return 0, Invalid(field, fmt.Sprintf("%s %.64q %s", field, text, err))
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
		return delay.When{}, Invalid("in", "give in or at, and not both")
	case w.In != "":
		d, err := ParseDelay("in", w.In)
		return delay.After(d), err
	}
	at, err := ParseTime("at", w.At)
	return delay.At(at), err
}

// parse is the message for the SDK.
func (s *Schedule) parse() (delay.Request, error) {
	when, err := s.When.Parse()
	if err != nil {
		return delay.Request{}, err
	}
	if s.MaxWait != "" {
		bound, err := parseDuration("max_wait", s.MaxWait)
		if err != nil {
			return delay.Request{}, err
		}
		when = when.MaxWait(bound)
	}
	body, err := decodeBody(s.Body, s.BodyBase64)
	if err != nil {
		return delay.Request{}, err
	}
	late, err := s.Late.parse()
	if err != nil {
		return delay.Request{}, err
	}
	return delay.Request{
		Message: delay.Message{ID: s.ID, Key: s.Key, Topic: s.Topic, Headers: s.Headers, Body: body, Tags: s.Tags, Late: late}, When: when, Repeat: s.Call,
	}, nil
}

// decodeBody is a payload, given as text or in base64.
func decodeBody(text, encoded string) ([]byte, error) {
	switch {
	case encoded == "":
		return []byte(text), nil
	case text != "":
		return nil, Invalid("body_base64", "give body or body_base64, and not both")
	}
	body, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, Invalid("body_base64", "body_base64 is not base64, with + and / and padding")
	}
	return body, nil
}

// encodeBody is a payload as text, or else in base64.
func encodeBody(body []byte) (text, encoded string) {
	if utf8.Valid(body) {
		return string(body), ""
	}
	return "", base64.StdEncoding.EncodeToString(body)
}

// ScheduleResult is the result of scheduling one message.
type ScheduleResult struct {
	ID         string `json:"id,omitempty"`
	Key        string `json:"key"`
	DueAt      string `json:"due_at,omitempty" format:"date-time" doc:"When it is due, by Redis' clock."`
	Status     string `json:"status,omitempty" enum:"created,replaced,existing"`
	NotDurable bool   `json:"not_durable,omitempty" doc:"Done, but not confirmed in time as the queue's durability asks."`
	// Error is there in a batch.
	Error *Fault `json:"error,omitempty" doc:"Why it was not scheduled."`
}

// Answer is the status, or the error's code.
func (s *ScheduleResult) Answer() string {
	if s.Error != nil {
		return s.Error.Code
	}
	return s.Status
}

// ScheduleAll schedules messages, those of one policy together, and returns a result an
// item, by index. may refuses some of them.
func (q *Queue) ScheduleAll(ctx context.Context, messages []Schedule, may func(index int) error) []ScheduleResult {
	results := make([]ScheduleResult, len(messages))
	requests := map[delay.Conflict][]delay.Request{}
	places := map[delay.Conflict][]int{}
	for i := range messages {
		m := &messages[i]
		results[i].ID, results[i].Key = m.ID, m.Key
		err := may(i)
		var request delay.Request
		if err == nil {
			request, err = m.parse()
		}
		if err != nil {
			results[i].Error = Classify(err)
			continue
		}
		conflict := Conflicts[m.Conflict]
		requests[conflict], places[conflict] = append(requests[conflict], request), append(places[conflict], i)
	}
	for conflict, batch := range requests {
		answers, _ := q.Clients[conflict].ScheduleBatch(ctx, batch) // Its error is each one's, too.
		for n, answer := range answers {
			at := places[conflict][n]
			results[at] = messages[at].scheduled(answer)
		}
	}
	return results
}

func (s *Schedule) scheduled(answer delay.Result) ScheduleResult {
	r := ViewScheduled(answer)
	if r.Error != nil {
		r.Error.Field = s.asSent(r.Error.Field)
	}
	return r
}

// ViewScheduled is an answer of the SDK as programs see it.
func ViewScheduled(answer delay.Result) ScheduleResult {
	r := ScheduleResult{ID: answer.Ref.ID, Key: answer.Ref.Key, DueAt: Stamp(answer.DueAt), Status: string(answer.Status)}
	if delay.Done(answer.Err) {
		r.NotDurable = answer.Err != nil
	} else {
		r.Error = Classify(answer.Err)
	}
	return r
}
