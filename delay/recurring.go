package delay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/recurring"
)

// Recurring is a schedule that fires again and again. Each firing is an ordinary message with the id
// NAME@2026-11-26T20:00:00Z, its nominal time in UTC, and the header [HeaderRecurring].
type Recurring struct {
	// Name names the schedule within its queue: 1 to 128 letters, digits, dots, dashes and underscores.
	Name string
	// Cron is a cron expression of five fields (minute, hour, day of the month, month, day of the week), @hourly,
	// @daily, @weekly, @monthly or @yearly, or @every and a duration of whole seconds, such as "@every 90s".
	Cron string
	// Zone is the IANA time zone whose local time Cron means, such as "Europe/Berlin"; empty is UTC. A local time that the
	// clock skips fires when the gap ends; one that occurs twice fires once, at first. Expressions for every
	// hour go by the real hours instead.
	Zone string
	// Message is what each firing publishes. Its ID must be empty; Key, Topic, Headers and Body may
	// have 64 KiB together.
	Message Message
	// Missed says what becomes of firings that nobody planned within a minute of their time, since all bridges or
	// Redis were down; empty is [SkipMissed]. CatchUp is for [CatchUpMissed] only: 1 to 100.
	Missed  Missed
	CatchUp int
	// Jitter delays each firing by 0 up to Jitter (exclusive), by a hash of its id: whole milliseconds, at most an hour and the
	// shortest interval between firings.
	Jitter time.Duration
	// Until is when the last firing may be; zero is no end.
	Until time.Time
}

// Missed says what becomes of missed firings.
type Missed string

// The policies for missed firings.
const (
	// SkipMissed leaves them out.
	SkipMissed Missed = "skip"
	// OnceMissed fires for the latest of them, at once.
	OnceMissed Missed = "once"
	// CatchUpMissed fires for the latest of them, up to [Recurring.CatchUp], at once.
	CatchUpMissed Missed = "catch_up"
)

// RecurringState is a recurring schedule as it is now.
type RecurringState struct {
	Recurring

	// SetAt is when it was set, by Redis' clock: an @every counts from then.
	SetAt time.Time
	// Next is the next firing, without its jitter; zero if there is none, because of a pause or of Until.
	Next time.Time
	// PausedAt is when it was paused, and PausedBy who did that; zero if it is not paused.
	PausedAt time.Time
	PausedBy string
	// Scheduled counts the firings that have become messages, Skipped those that were missed and left out; both
	// since it was set.
	Scheduled, Skipped int64
}

// ErrManyRecurring is returned by [Client.SetRecurring] if the queue has 256 recurring schedules. Nothing was changed.
var ErrManyRecurring = recurring.ErrMany

// SetRecurring creates a recurring schedule, or replaces the one of that name. It leaves an equal one as it is, and a paused one
// paused, so it may be called at each start of a program. Bridges plan the firings, half a minute ahead.
//
// If it replaces another one, firings of that one that are not due yet are cancelled before it returns; those that
// are due, or in flight, may still come. The same goes for pauses and deletes.
//
// Its errors are [ErrInvalid], [ErrManyRecurring], [ErrNoLayout], [ErrFull], [ErrUnavailable] and [ErrUnknown]. After the last three it
// may be in force, also some time later, but not once another change of that name has been answered, with [ErrNotFound] or with nil, also if it changed
// nothing; bridges cancel then what was not cancelled. After [ErrNotDurable] it is in force, and its state is returned.
// [WithEncryption] does not go together with it: such a client gets [ErrInvalid].
func (c *Client) SetRecurring(ctx context.Context, r Recurring) (RecurringState, error) {
	spec, err := c.recurringSpec(&r)
	if err != nil {
		return RecurringState{}, err
	}
	return c.withRecurring(ctx, func(ctx context.Context, all *recurring.Schedules) (recurring.Record, error) {
		set, _, err := all.Set(ctx, r.Name, spec)
		return set, err
	})
}

func (c *Client) recurringSpec(r *Recurring) (recurring.Spec, error) {
	m := &r.Message
	switch {
	case m.ID != "":
		return recurring.Spec{}, invalid("id", m.ID, "must be empty: each firing has an id of its own")
	case c.extras.encrypted:
		return recurring.Spec{}, invalid("encryption", "set", "each message is encrypted for itself, so a recurring schedule cannot be: use a client without")
	}
	headers, err := m.headers(false)
	if err != nil {
		return recurring.Spec{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return recurring.Spec{
		Cron: r.Cron, Zone: r.Zone, Topic: m.Topic, Key: m.Key, Headers: headers, Body: m.Body,
		Missed: recurring.Missed(r.Missed), CatchUp: r.CatchUp, Jitter: r.Jitter, Until: r.Until,
	}, nil
}

// Recurring returns a recurring schedule. Its errors are [ErrNotFound], [ErrNoLayout] and [ErrUnavailable].
func (c *Client) Recurring(ctx context.Context, name string) (RecurringState, error) {
	return c.withRecurring(ctx, func(ctx context.Context, all *recurring.Schedules) (recurring.Record, error) {
		return all.Get(ctx, name)
	})
}

// Recurrings returns the queue's recurring schedules, at most 256, by name. Its errors are [ErrNoLayout] and [ErrUnavailable].
func (c *Client) Recurrings(ctx context.Context) ([]RecurringState, error) {
	ctx, cancel := c.begin(ctx)
	defer cancel()
	kept, _, err := c.recurrings().List(ctx)
	if err != nil {
		return nil, recurringError(err)
	}
	list := make([]RecurringState, 0, len(kept))
	for i := range kept {
		if !kept[i].IsDeleted && kept[i].Err == nil {
			list = append(list, c.recurringState(&kept[i].Record))
		}
	}
	return list, nil
}

// PauseRecurring ends the firings of a schedule until [Client.ResumeRecurring]; by, at most 128 bytes, is who has paused it.
// For firings that wait, and for the errors, see [Client.SetRecurring]; [ErrNotFound] if there is none of that name.
func (c *Client) PauseRecurring(ctx context.Context, name, by string) (RecurringState, error) {
	return c.withRecurring(ctx, func(ctx context.Context, all *recurring.Schedules) (recurring.Record, error) {
		return all.Pause(ctx, name, by)
	})
}

// ResumeRecurring lets a schedule fire again, from now on: what it would have fired during the pause is not missed. For
// the errors see [Client.PauseRecurring].
func (c *Client) ResumeRecurring(ctx context.Context, name string) (RecurringState, error) {
	return c.withRecurring(ctx, func(ctx context.Context, all *recurring.Schedules) (recurring.Record, error) {
		return all.Resume(ctx, name)
	})
}

// DeleteRecurring removes a schedule. For firings that wait see [Client.SetRecurring], for the errors [Client.PauseRecurring].
func (c *Client) DeleteRecurring(ctx context.Context, name string) error {
	_, err := c.withRecurring(ctx, func(ctx context.Context, all *recurring.Schedules) (recurring.Record, error) {
		return all.Delete(ctx, name)
	})
	return err
}

func (c *Client) recurrings() *recurring.Schedules { return recurring.New(c.store, c.confirm) }

func (c *Client) withRecurring(
	ctx context.Context, do func(context.Context, *recurring.Schedules) (recurring.Record, error),
) (RecurringState, error) {
	ctx, cancel := c.begin(ctx)
	defer cancel()
	r, err := do(ctx, c.recurrings())
	switch {
	case err == nil:
		return c.recurringState(&r), nil
	case errors.Is(err, ErrNotDurable):
		return c.recurringState(&r), err
	}
	return RecurringState{}, recurringError(err)
}

func recurringError(err error) error {
	var wrong *message.InvalidError
	switch {
	case errors.As(err, &wrong):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case errors.Is(err, recurring.ErrNone):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return failed(err)
}

func (c *Client) recurringState(r *recurring.Record) RecurringState {
	headers, tags := message.CutTags(r.Headers)
	headers, late, _ := message.CutLate(headers) // It was checked.
	return RecurringState{
		Recurring: Recurring{
			Name: r.Name, Cron: r.Cron, Zone: r.Zone, Missed: Missed(r.Missed), CatchUp: r.CatchUp, Jitter: r.Jitter, Until: r.Until,
			Message: Message{Key: r.Key, Topic: r.Topic, Headers: headers, Body: r.Body, Tags: tags, Late: Late{After: late.After, Then: LateAction(late.Then)}},
		},
		SetAt: r.SetAt, Next: r.Next(c.queue.Now()), PausedAt: r.Paused, PausedBy: r.By, Scheduled: r.Scheduled, Skipped: r.Skipped,
	}
}
