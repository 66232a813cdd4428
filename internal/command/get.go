package command

import (
	"fmt"

	"github.com/delaybridge/delaybridge/internal/engine/seal"
	"github.com/delaybridge/delaybridge/internal/operate"
)

type getCommand struct {
	messageFlags
	Body bool `help:"Show the body, too; in JSON as base64."`
}

func (getCommand) Help() string {
	return `If the queue keeps a history, it says when and how a message ended; if the message had a key,
give --key, too.

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
	found, err := s.locate(c.ID, c.Key)
	if err != nil {
		return s.fail("get", c.ID, err)
	}
	return s.show(&found, c.Body)
}

// show prints a message, as far as it can be read.
func (s *session) show(m *operate.FoundMessage, withBody bool) (err error) {
	view, found := m.View(), &m.Snapshot
	if withBody = withBody && found.Err == nil && !m.HasEnded; withBody {
		found.Err = seal.Open(s.keys, &found.Message)
		withBody = found.Err == nil
	}
	if s.asJSON {
		if withBody {
			view.Body = inBase64(found.Body)
		}
		err = writeJSON(s.program.stdout, view)
	} else {
		err = describe(s.program.stdout, m, &view, s.Store.Now(), withBody)
	}
	if err == nil && found.Err != nil {
		err = &failure{code: "failed", exit: exitFailed, id: found.ID, text: fmt.Sprintf("%q cannot be read: %v", found.ID, found.Err)}
	}
	return err
}
