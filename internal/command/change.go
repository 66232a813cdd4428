package command

import (
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/operate"
)

type cancelCommand struct{ changeFlags }

// changeFlags name one message, or many.
type changeFlags struct {
	queueFlags
	ID    string    `name:"id" placeholder:"ID" help:"The message's id."`
	Key   *string   `placeholder:"KEY" help:"The message's key; with --all, the key of the messages. Default: search all messages of that id."`
	State string    `placeholder:"STATE" help:"With --all: their state: scheduled, parked, in_flight or dead."`
	Bulk  bulkFlags `embed:""`
}

// one are the flags that name one message.
func (f changeFlags) one() messageFlags {
	return messageFlags{queueFlags: f.queueFlags, ID: f.ID, Key: f.Key}
}

// check requires either one message or a filter.
func (f changeFlags) check() error {
	switch {
	case f.ID == "" && !f.Bulk.All:
		return usagef("missing flags: --id=ID, or --all with flags that select messages")
	case f.ID != "" && f.Bulk.All:
		return usagef("give --id or --all, not both")
	case f.Bulk.All:
		return nil
	case f.Bulk.isUsed() || f.State != "":
		return usagef("flags that select messages need --all")
	}
	return nil
}

// filter is what the messages have in common.
func (f changeFlags) filter() inspect.Filter {
	return filterFlags{State: f.State, Key: deref(f.Key), narrowFlags: f.Bulk.narrowFlags}.filter()
}

func (cancelCommand) Help() string {
	return `You can also cancel a dead letter. Exit code 3: the message is being published right now, or
there is no such message. If a copy may have been published before, the message is cancelled,
the exit code is 0, and a warning says so.

With --all the bridges cancel all messages that the flags describe, wherever they are.

Example:

    bridge cancel --config bridge.yaml --queue orders --id order-42/timeout
    bridge cancel --config bridge.yaml --queue orders --all --tag spring-sale --rate 500/s`
}

func (c cancelCommand) Run(p *program) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.Bulk.All {
		return c.Bulk.start(p, c.queueFlags, job.Spec{Verb: job.Cancel, Filter: c.filter()})
	}
	return c.one().operate(p, "cancel", func(s *session, m *operate.FoundMessage, made *inspect.Change) error {
		now, err := s.Cancel(s.ctx, delay.Ref{ID: m.Snapshot.ID, Key: m.Snapshot.Key})
		if err != nil {
			return s.fail("cancel", m.Snapshot.ID, err)
		}
		m.State = inspect.State(now.Status)
		return s.changed("cancel", m, now, made, "cancelled "+m.Snapshot.ID)
	})
}

type rescheduleCommand struct {
	changeFlags
	dueFlags
	By *shift `xor:"due" required:"" placeholder:"DURATION" help:"With --all: how much later each becomes due, or earlier with a minus: --by=-30m."`
}

func (rescheduleCommand) Help() string {
	return `A dead letter is put back, with the new due time. Exit code 3: the message is being published
right now, or there is no such message. If a copy may have been published before, the message is
moved, the exit code is 0, and a warning says so.

With --all the bridges move all messages that the flags describe, wherever they are.

Example:

    bridge reschedule --config bridge.yaml --queue orders --id order-42/timeout --in 2h
    bridge reschedule --config bridge.yaml --queue orders --all --topic order.timeout --state scheduled --by 30m`
}

func (c rescheduleCommand) Run(p *program) error {
	if err := c.check(); err != nil {
		return err
	}
	switch {
	case c.Bulk.All:
		spec := job.Spec{Verb: job.Reschedule, Filter: c.filter()}
		if c.By != nil {
			spec.By = time.Duration(*c.By)
		}
		return c.Bulk.start(p, c.queueFlags, spec, c.dueFlags)
	case c.By != nil:
		return usagef("--by needs --all; give --in or --at")
	}
	return c.one().reschedule(p, "reschedule", c.dueFlags)
}

type publishNowCommand struct{ messageFlags }

func (publishNowCommand) Help() string {
	return `Reschedules the message to now. If its route is unavailable, it still waits for it; a dead letter
is put back.

Example:

    bridge publish-now --config bridge.yaml --queue orders --id order-42/timeout`
}

func (c publishNowCommand) Run(p *program) error {
	return c.reschedule(p, "publish-now", dueFlags{In: new(span)})
}

// reschedule looks for the message and moves it.
func (f messageFlags) reschedule(p *program, verb string, to dueFlags) error {
	return f.operate(p, verb, func(s *session, m *operate.FoundMessage, made *inspect.Change) error {
		due, ref := to.from(s.Store.Now()), delay.Ref{ID: m.Snapshot.ID, Key: m.Snapshot.Key}
		now, err := s.Reschedule(s.ctx, ref, to.when())
		if err != nil {
			return s.fail(verb, ref.ID, err)
		}
		// The due time by Redis' clock; if it is gone already, it was due as estimated.
		if moved, err := s.Get(s.ctx, ref); err == nil && !moved.HasEnded {
			m = &moved
		} else {
			m.Snapshot.DueAt, m.State = due, inspect.StateScheduled
		}
		return s.changed(verb, m, now, made, fmt.Sprintf("rescheduled %s: due %s%s", ref.ID, formatTime(m.Snapshot.DueAt), relative(m.Snapshot.DueAt, s.Store.Now())))
	})
}

// operate looks for the message and then does something to it.
func (f messageFlags) operate(p *program, verb string, do func(*session, *operate.FoundMessage, *inspect.Change) error) error {
	made := inspect.Change{Action: verb, What: f.ID, Key: deref(f.Key)}
	return f.changing(p, made, func(s *session, made *inspect.Change) error {
		found, err := s.find(f.ID, f.Key)
		if err != nil {
			return s.fail(verb, f.ID, err)
		}
		s.resetTimer()
		made.Key = found.Snapshot.Key
		return do(s, &found, made)
	})
}

// changed prints what was done to a message. That a copy may be out is a warning, and so is that
// Redis may forget it.
func (s *session) changed(verb string, m *operate.FoundMessage, now operate.ChangeResult, made *inspect.Change, text string) (err error) {
	made.Answer = now.Status
	if now.MaybePublished {
		warn(s.program, s.asJSON, "maybe_published", m.Snapshot.ID, fmt.Sprintf("%s %q: done, but a copy may have been published before", verb, m.Snapshot.ID))
	}
	if now.NotDurable {
		s.warnNotDurable(verb, m.Snapshot.ID)
	}
	if !s.asJSON {
		_, err = fmt.Fprintln(s.program.stdout, text)
		return err
	}
	view := m.View()
	view.MaybePublished = view.MaybePublished || now.MaybePublished
	return writeJSON(s.program.stdout, changeJSON{view, now.Status, now.NotDurable})
}

// warnNotDurable says that the call was done, but not as durably as the configuration asks.
func (s *session) warnNotDurable(verb, id string) {
	text := fmt.Sprintf("%s %q: done, but not confirmed in time as durability %s asks", verb, id, s.config.Durability)
	warn(s.program, s.asJSON, "not_durable", id, text)
}
