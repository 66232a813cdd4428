package command

import (
	"errors"
	"fmt"
	"strings"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
)

type deadCommands struct {
	List    deadListCommand    `cmd:"" help:"List dead letters."`
	Show    deadShowCommand    `cmd:"" help:"Show a dead letter."`
	Redrive deadRedriveCommand `cmd:"" help:"Put dead letters back, due now."`
	Purge   deadPurgeCommand   `cmd:"" help:"Delete dead letters for good."`
}

type deadListCommand struct {
	queueFlags
	Limit int  `default:"100" help:"Most to list; it says if there are more."`
	Body  bool `help:"Show the bodies, in JSON as base64, except those whose encryption key the configuration does not have."`
}

func (deadListCommand) Help() string {
	return `The oldest come first within each shard.

Example:

    bridge dead list --config bridge.yaml --queue orders`
}

func (c deadListCommand) Run(p *program) error {
	if c.Limit < 1 {
		return usagef("--limit %d: must be 1 or more", c.Limit)
	}
	if c.Body && !c.json() {
		return usagef("--body needs -o json here; `bridge dead show --body` shows one as text")
	}
	s, err := c.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	list := c.listing(p.stdout, "ID", "KEY", "TOPIC", "DIED", "ATTEMPT", "REASON", "+DUE", "+BYTES", "+TAGS")
	more := false
	var failed error
	err = s.deadLetters(func(letter *message.DeadLetter) bool {
		if more = list.rows == c.Limit; more {
			return false
		}
		failed = list.row(func() any { return c.view(s, letter) }, letter.ID, letter.Key, letter.Topic, formatTime(letter.DiedAt),
			letter.Attempt, oneLine(letter), formatTime(letter.DueAt), len(letter.Body), strings.Join(letter.Tags(), " "))
		return failed == nil
	})
	err = list.end(errors.Join(err, failed), "no dead letters in queue %s", s.Name)
	switch {
	case err != nil:
		return s.fail("list dead letters of", "", err)
	case more:
		_, _ = fmt.Fprintf(s.program.stderr, "bridge: there are more than these %d; --limit N shows more\n", list.rows)
	}
	return nil
}

func (c deadListCommand) view(s *session, letter *message.DeadLetter) operate.Message {
	view := letterJSON(s.Name, letter, string(delay.Dead))
	if c.Body {
		view = s.withBody(view, &letter.Message)
	}
	return view
}

// letterJSON is the JSON form of a dead letter, or of its end.
func letterJSON(queue string, letter *message.DeadLetter, state string) operate.Message {
	found := inspect.Snapshot{Message: letter.Message, Reason: letter.Reason, DiedAt: letter.DiedAt, MaybePublished: letter.Attempts.MaybeOut > 0, Err: letter.Err}
	if found.Queue = queue; state == string(inspect.StateDead) {
		found.Code = store.Dead
	} else {
		found.Reason = ""
	}
	return operate.ViewMessage(&found, inspect.State(state))
}

// oneLine is the reason, and what else is wrong, for a table.
func oneLine(letter *message.DeadLetter) string {
	reason := letter.Reason
	if letter.Err != nil {
		reason = strings.TrimPrefix(reason+"; "+letter.Err.Error(), "; ")
	}
	return strings.Join(strings.Fields(reason), " ")
}

// deadLetters walks over all dead letters. A queue that was never used has none.
func (s *session) deadLetters(yield func(*message.DeadLetter) bool) error {
	err := s.Admin().DeadLetters(s.ctx, func(letter message.DeadLetter) bool {
		s.resetTimer()
		return yield(&letter)
	})
	if errors.Is(err, delay.ErrNoLayout) {
		return nil
	}
	return err
}

// letterFlags name one dead letter.
type letterFlags struct {
	queueFlags
	Letter string  `arg:"" name:"id" optional:"" help:"The dead letter's id."`
	ID     string  `name:"id" placeholder:"ID" help:"The same as the argument."`
	Key    *string `placeholder:"KEY" help:"The message's key. Default: search all messages of that id."`
}

// id is what was given, one way or the other; empty if nothing was.
func (f letterFlags) id() (string, error) {
	if f.ID != "" && f.Letter != "" && f.ID != f.Letter {
		return "", usagef("give one id, not %q and %q", f.Letter, f.ID)
	}
	return f.Letter + strings.TrimPrefix(f.ID, f.Letter), nil
}

type deadShowCommand struct {
	letterFlags
	Body bool `help:"Show the body, too; in JSON as base64."`
}

func (deadShowCommand) Help() string {
	return `Exit code 3: there is no such dead letter.

Example:

    bridge dead show --config bridge.yaml --queue orders --body order-42/timeout`
}

func (c deadShowCommand) Run(p *program) error {
	id, err := c.id()
	if err != nil {
		return err
	}
	if id == "" {
		return usagef("give the id of a dead letter; `bridge dead list` shows them")
	}
	s, err := c.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	found, err := s.locateDead(id, c.Key)
	if err != nil {
		return s.fail("show", id, err)
	}
	return s.show(&found, c.Body)
}

// locateDead is find for a message that must be in the dead letters.
func (s *session) locateDead(id string, key *string) (operate.FoundMessage, error) {
	found, err := s.find(id, key)
	if err == nil && found.State != inspect.StateDead {
		text := fmt.Sprintf("%q is not in the dead letters: it is %s", id, found.State)
		err = &failure{code: "not_dead", exit: exitRefused, id: id, text: text}
	}
	return found, err
}

func (s *session) findDead(id string, key *string) (inspect.Snapshot, error) {
	found, err := s.locateDead(id, key)
	return found.Snapshot, err
}
