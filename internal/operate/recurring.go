package operate

import (
	"context"
	"errors"
	"time"

	"github.com/delaybridge/delaybridge/delay"
)

// Recurring is a recurring schedule as callers set it.
type Recurring struct {
	Cron       string            `json:"cron" doc:"A cron expression of five fields, @hourly and the like, or @every and whole seconds." example:"0 20 * * MON-FRI"`
	Zone       string            `json:"zone,omitempty" doc:"The IANA time zone whose local time the expression means; UTC by default." example:"Europe/Berlin"`
	Key        string            `json:"key,omitempty" doc:"Messages of one key and topic are published in due order."`
	Topic      string            `json:"topic" doc:"Where each firing is published: Kafka topic, RabbitMQ routing key, NATS subject." example:"report.make"`
	Headers    map[string]string `json:"headers,omitempty" doc:"Headers for the consumer, passed through unchanged."`
	Body       string            `json:"body,omitempty" doc:"The payload of each firing, as text."`
	BodyBase64 string            `json:"body_base64,omitempty" doc:"The payload in base64, instead of body."`
	Tags       []string          `json:"tags,omitempty" doc:"Labels by which related messages are found: at most 8."`
	Late       *Late             `json:"late,omitempty" doc:"How late a firing may be published; the default is the queue's setting."`
	Missed     string            `json:"missed,omitempty" enum:"skip,once,catch_up" doc:"What becomes of firings that nobody planned within a minute of their time: they are left out (by default), the latest is published at once, or the latest up to catch_up are."`
	CatchUp    int               `json:"catch_up,omitempty" doc:"With missed: catch_up, how many: 1 to 100."`
	Jitter     string            `json:"jitter,omitempty" doc:"Delays each firing by up to this, by a hash of its id: at most 1h and the shortest interval between firings." example:"30s"`
	Until      string            `json:"until,omitempty" doc:"When the last firing may be, RFC 3339; no end by default." example:"2027-01-31T09:00:00.000Z"`
}

// RecurringState is a recurring schedule as it is now.
type RecurringState struct {
	Recurring

	Name      string `json:"name"`
	Queue     string `json:"queue"`
	SetAt     string `json:"set_at" format:"date-time" doc:"When it was set: an @every counts from then."`
	Next      string `json:"next,omitempty" format:"date-time" doc:"The next firing, without its jitter; absent if there is none, because of a pause or of until."`
	Paused    bool   `json:"paused"`
	PausedAt  string `json:"paused_at,omitempty" format:"date-time"`
	PausedBy  string `json:"paused_by,omitempty"`
	Scheduled int64  `json:"scheduled" doc:"How many firings have become messages since it was set."`
	Skipped   int64  `json:"skipped" doc:"How many were missed and left out since it was set."`

	NotDurable bool `json:"not_durable,omitempty" doc:"Done, but not confirmed in time as the queue's durability asks."`
}

// parse is the schedule for the SDK.
func (r *Recurring) parse(name string) (all delay.Recurring, err error) {
	body, err := decodeBody(r.Body, r.BodyBase64)
	if err != nil {
		return all, err
	}
	late, err := r.Late.parse()
	if err != nil {
		return all, err
	}
	var jitter time.Duration
	if r.Jitter != "" {
		if jitter, err = parseDuration("jitter", r.Jitter); err != nil {
			return all, err
		}
	}
	until, err := ParseTime("until", r.Until)
	return delay.Recurring{
		Name: name, Cron: r.Cron, Zone: r.Zone, Missed: delay.Missed(r.Missed), CatchUp: r.CatchUp, Jitter: jitter, Until: until,
		Message: delay.Message{Key: r.Key, Topic: r.Topic, Headers: r.Headers, Body: body, Tags: r.Tags, Late: late},
	}, err
}

// SetRecurring creates a recurring schedule, or replaces the one of that name.
func (q *Queue) SetRecurring(ctx context.Context, name string, r *Recurring) (RecurringState, error) {
	all, err := r.parse(name)
	if err != nil {
		return RecurringState{}, err
	}
	state, err := q.Client().SetRecurring(ctx, all)
	if err != nil {
		if f := Classify(err); f.Code == CodeInvalid {
			return RecurringState{}, Invalid(When{}.asSent(f.Field), f.Detail)
		}
	}
	return q.viewRecurring(state, err)
}

// Recurring returns a recurring schedule; without its payload, as all the others do.
func (q *Queue) Recurring(ctx context.Context, name string, withBody bool) (RecurringState, error) {
	state, err := q.Client().Recurring(ctx, name)
	view, err := q.viewRecurring(state, err)
	if err == nil && withBody {
		view.Body, view.BodyBase64 = encodeBody(state.Message.Body)
	}
	return view, err
}

// Recurrings returns those of the queue, by name.
func (q *Queue) Recurrings(ctx context.Context) ([]RecurringState, error) {
	all, err := q.Client().Recurrings(ctx)
	list := make([]RecurringState, len(all))
	for i := range all {
		list[i], _ = q.viewRecurring(all[i], nil)
	}
	return list, err
}

// PauseRecurring ends the firings of a schedule until ResumeRecurring, in the name of by.
func (q *Queue) PauseRecurring(ctx context.Context, name, by string) (RecurringState, error) {
	return q.viewRecurring(q.Client().PauseRecurring(ctx, name, by))
}

// ResumeRecurring lets a schedule fire again.
func (q *Queue) ResumeRecurring(ctx context.Context, name string) (RecurringState, error) {
	return q.viewRecurring(q.Client().ResumeRecurring(ctx, name))
}

// RecurringDeletion says that a recurring schedule was deleted.
type RecurringDeletion struct {
	Name   string `json:"name"`
	Status string `json:"status" enum:"deleted"`

	NotDurable bool `json:"not_durable,omitempty" doc:"Done, but not confirmed in time as the queue's durability asks."`
}

// DeleteRecurring removes a schedule.
func (q *Queue) DeleteRecurring(ctx context.Context, name string) (RecurringDeletion, error) {
	deleted, err := RecurringDeletion{Name: name, Status: "deleted"}, q.Client().DeleteRecurring(ctx, name)
	if errors.Is(err, delay.ErrNotDurable) {
		deleted.NotDurable, err = true, nil
	}
	return deleted, err
}

func (q *Queue) viewRecurring(s delay.RecurringState, err error) (RecurringState, error) {
	isDone := errors.Is(err, delay.ErrNotDurable)
	if err != nil && !isDone {
		return RecurringState{}, err
	}
	m := &s.Message
	v := RecurringState{
		Recurring: Recurring{
			Cron: s.Cron, Zone: s.Zone, Key: m.Key, Topic: m.Topic, Headers: m.Headers, Tags: m.Tags,
			Missed: string(s.Missed), CatchUp: s.CatchUp, Until: Stamp(s.Until),
		},
		Name: s.Name, Queue: q.Name, SetAt: Stamp(s.SetAt), Next: Stamp(s.Next),
		Paused: !s.PausedAt.IsZero(), PausedAt: Stamp(s.PausedAt), PausedBy: s.PausedBy, Scheduled: s.Scheduled, Skipped: s.Skipped,
		NotDurable: isDone,
	}
	if s.Jitter > 0 {
		v.Jitter = s.Jitter.String()
	}
	if m.Late != (delay.Late{}) {
		v.Late = &Late{Then: string(m.Late.Then)}
		if m.Late.After > 0 {
			v.Late.After = m.Late.After.String()
		}
	}
	return v, nil
}
