package main

import (
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/seal"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

type getCommand struct {
	messageFlags
	Body bool `help:"Show the body, too; in JSON as base64."`
}

func (getCommand) Help() string {
	return `Of a message that has ended it tells when and how, where the queue keeps a history; to find
one that had a key, give --key, too.

Exit code 3: there is no such message: it was published or cancelled and is not remembered,
or never scheduled.

Example:

    bridge get --config bridge.yaml --queue orders --id order-42/timeout`
}

func (c getCommand) Run(p *program) error {
	s, err := c.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	found, err := s.find(c.ID, c.Key)
	if errors.Is(err, delay.ErrNotFound) {
		return s.showEnd(c.ID, deref(c.Key), err)
	}
	if err != nil {
		return s.fail("get", c.ID, err)
	}
	return s.show(&found, c.Body)
}

// show prints a message, as far as it can be read.
func (s *session) show(found *inspect.Found, withBody bool) error {
	if withBody && found.Err == nil {
		opened := found.Message
		found.Err = seal.Open(s.beside.keys, &opened)
		found.Body, withBody = opened.Body, found.Err == nil
	}
	var err error
	if s.asJSON {
		view := toJSON(s.name, &found.Message, stateOf(found.Code)).withDeath(found.Reason, found.DiedAt)
		if withBody {
			view = view.withBody(found.Body)
		}
		err = writeJSON(s.program.stdout, view)
	} else {
		err = describe(s.program.stdout, found, s.queue.Now(), withBody)
	}
	if err == nil && found.Err != nil {
		err = &failure{code: "failed", exit: exitFailed, id: found.ID, text: fmt.Sprintf("%q cannot be read: %v", found.ID, found.Err)}
	}
	return err
}

// showEnd prints what the queue remembers of a message that is not there; the error is
// notFound where that is nothing.
func (s *session) showEnd(id, key string, notFound error) error {
	found, ok, err := inspect.Get(s.ctx, s.queue, id, key)
	switch {
	case errors.Is(err, delay.ErrNoLayout):
		return s.fail("get", id, notFound)
	case err != nil:
		return s.fail("get", id, err)
	case ok: // It has come meanwhile.
		return s.show(&found, false)
	case found.End == nil:
		return s.fail("get", id, notFound)
	}
	end := found.End
	if s.asJSON {
		m := message.Message{ID: id, Key: key, Topic: end.Topic, DueAt: end.DueAt, Attempt: end.Attempt}
		return writeJSON(s.program.stdout, toJSON(s.name, &m, end.Kind.String()).withEnd(end))
	}
	tabs := tabwriter.NewWriter(s.program.stdout, 0, 0, 2, ' ', 0)
	line := func(name, value string) { _, _ = fmt.Fprintf(tabs, "%s\t%s\n", name, value) } // Flush has the error.
	line("id", id)
	if key != "" {
		line("key", key)
	}
	line("queue", s.name)
	line("topic", end.Topic)
	line("state", end.Kind.String())
	line(end.Kind.String(), formatTime(end.At)+relative(end.At, s.queue.Now()))
	if end.Kind == message.EndPublished && end.Detail != "" {
		line("place", end.Detail)
	} else if end.Detail != "" {
		line("reason", end.Detail)
	}
	line("due", formatTime(end.DueAt)+relative(end.DueAt, s.queue.Now()))
	line("attempt", fmt.Sprint(end.Attempt))
	return tabs.Flush()
}
