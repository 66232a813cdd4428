package main

import (
	"fmt"

	"github.com/delaybridge/delaybridge/internal/store"
)

type getCommand struct {
	messageFlags
	Body bool `help:"Show the body, too; in JSON as base64."`
}

func (getCommand) Help() string {
	return `Exit code 3: there is no such message: it was published or cancelled, or never scheduled.

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
	if err != nil {
		return s.fail("get", c.ID, err)
	}
	return s.show(&found, c.Body)
}

// show prints a message, as far as it can be read.
func (s *session) show(found *store.Found, withBody bool) error {
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
