package main

import (
	"errors"
	"fmt"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/store"
)

type cancelCommand struct{ messageFlags }

func (cancelCommand) Help() string {
	return `A message in the dead letters can be cancelled, too. Exit code 3: it is being published right
now, or there is no such message. Where a copy may have been published before, the message is
cancelled, the exit code is 0, and a warning says so.

Example:

    bridge cancel --config bridge.yaml --queue orders --id order-42/timeout`
}

func (c cancelCommand) Run(p *program) error {
	return c.operate(p, "cancel", func(s *session, found *store.Found, ref delay.Ref) error {
		if err := s.done("cancel", ref.ID, s.client.Cancel(s.ctx, ref)); err != nil {
			return err
		}
		if s.asJSON {
			return writeJSON(s.program.stdout, toJSON(s.name, &found.Message, stateCancelled))
		}
		_, err := fmt.Fprintf(s.program.stdout, "cancelled %s\n", ref.ID)
		return err
	})
}

type rescheduleCommand struct {
	messageFlags
	dueFlags
}

func (rescheduleCommand) Help() string {
	return `A message in the dead letters is put back, due then. Exit code 3: it is being published right
now, or there is no such message. Where a copy may have been published before, the message is
moved, the exit code is 0, and a warning says so.

Example:

    bridge reschedule --config bridge.yaml --queue orders --id order-42/timeout --in 2h`
}

func (c rescheduleCommand) Run(p *program) error {
	return c.reschedule(p, "reschedule", c.dueFlags)
}

type publishNowCommand struct{ messageFlags }

func (publishNowCommand) Help() string {
	return `As a reschedule to now. A message whose route is unavailable still waits for it; one in the dead
letters is put back.

Example:

    bridge publish-now --config bridge.yaml --queue orders --id order-42/timeout`
}

func (c publishNowCommand) Run(p *program) error {
	return c.reschedule(p, "publish-now", dueFlags{In: new(span)})
}

// reschedule looks for the message and moves it.
func (f messageFlags) reschedule(p *program, verb string, to dueFlags) error {
	return f.operate(p, verb, func(s *session, found *store.Found, ref delay.Ref) error {
		due := to.from(s.queue.Now())
		if err := s.done(verb, ref.ID, s.client.Reschedule(s.ctx, ref, to.when())); err != nil {
			return err
		}
		// The due time by Redis' clock; if it is gone already, it was due as estimated.
		if moved, ok, err := s.queue.Producer().Get(s.ctx, ref.ID, ref.Key); err == nil && ok {
			found = &moved
		} else {
			found.DueAt, found.Code = due, store.Waiting
		}
		if s.asJSON {
			return writeJSON(s.program.stdout, toJSON(s.name, &found.Message, stateOf(found.Code)))
		}
		_, err := fmt.Fprintf(s.program.stdout, "rescheduled %s: due %s%s\n", ref.ID, formatTime(found.DueAt), relative(found.DueAt, s.queue.Now()))
		return err
	})
}

// operate looks for the message and then does something to it.
func (f messageFlags) operate(p *program, verb string, do func(*session, *store.Found, delay.Ref) error) error {
	s, err := f.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	found, err := s.find(f.ID, f.Key)
	if err != nil {
		return s.fail(verb, f.ID, err)
	}
	s.answered()
	return do(s, &found, delay.Ref{ID: found.ID, Key: found.Key})
}

// done turns the answer that a copy may be out into a warning: the call was done.
func (s *session) done(verb, id string, err error) error {
	if errors.Is(err, delay.ErrMaybePublished) {
		warn(s.program, s.asJSON, "maybe_published", id, fmt.Sprintf("%s %q: done, but a copy may have been published before", verb, id))
		return nil
	}
	return s.fail(verb, id, err)
}
