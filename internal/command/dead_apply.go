package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// deadChunk is how many dead letters are collected before the verb is applied.
const deadChunk = 1000

// deadFlags name the dead letters of the verb.
type deadFlags struct {
	letterFlags
	Bulk bulkFlags `embed:""`
}

// isJob reports whether the bridges are to do it: not all dead letters are meant, or it
// is to be counted or paced.
func (f deadFlags) isJob() bool {
	return f.Bulk.All && (f.Bulk.isUsed() || f.Key != nil)
}

// startJob has the bridges do it.
func (f deadFlags) startJob(p *program, verb job.Verb) error {
	if id, err := f.id(); err != nil || id != "" {
		return errors.Join(err, usagef("give the id of a dead letter, or --all"))
	}
	filter := filterFlags{State: string(inspect.StateDead), Key: deref(f.Key), narrowFlags: f.Bulk.narrowFlags}.filter()
	return f.Bulk.start(p, f.queueFlags, job.Spec{Verb: verb, Filter: filter})
}

type deadRedriveCommand struct{ deadFlags }

func (deadRedriveCommand) Help() string {
	return `The messages are due at once and have all their attempts again. Exit code 3: there is no such
dead letter, or it has lost its body and can only be purged.

Example:

    bridge dead redrive --config bridge.yaml --queue orders order-42/timeout
    bridge dead redrive --config bridge.yaml --queue orders --all
    bridge dead redrive --config bridge.yaml --queue orders --all --reason-contains unroutable --rate 100/s`
}

func (c deadRedriveCommand) Run(p *program) error {
	if c.isJob() {
		return c.startJob(p, job.Redrive)
	}
	s, id, err := c.connect(p)
	if err != nil {
		return err
	}
	defer s.close()
	return c.apply(s, id, deadVerb{
		name: "redrive", past: "redrove", state: string(delay.Scheduled), dueNow: true,
		do: func(members []string) ([]store.Code, error) { return s.Admin().Redrive(s.ctx, members) },
	})
}

type deadPurgeCommand struct {
	deadFlags
	Yes bool `short:"y" help:"With --all: do not ask."`
}

func (deadPurgeCommand) Help() string {
	return `With --all it asks first; without a terminal it needs --yes. Exit code 3: there is no such dead
letter.

Example:

    bridge dead purge --config bridge.yaml --queue orders order-42/timeout
    bridge dead purge --config bridge.yaml --queue orders --all --yes`
}

func (c deadPurgeCommand) Run(p *program) error {
	if c.isJob() {
		if !c.Yes && !c.Bulk.DryRun {
			if err := confirm(p, fmt.Sprintf("Delete these dead letters of queue %s for good?", c.Queue)); err != nil {
				return err
			}
		}
		return c.startJob(p, job.Purge)
	}
	s, id, err := c.connect(p)
	if err != nil {
		return err
	}
	defer s.close()
	if c.Bulk.All && !c.Yes {
		s.silent.Stop()
		if err := confirm(p, fmt.Sprintf("Delete all dead letters of queue %s for good?", s.Name)); err != nil {
			return err
		}
		s.resetTimer()
	}
	return c.apply(s, id, deadVerb{
		name: "purge", past: "purged", state: statePurged,
		do: func(members []string) ([]store.Code, error) { return s.Admin().Purge(s.ctx, members) },
	})
}

// confirm asks at the terminal. Anything but yes is an error.
func confirm(p *program, question string) error {
	if terminal(p.stdin) < 0 {
		return usagef("--all needs --yes without a terminal to ask at")
	}
	_, _ = fmt.Fprintf(p.stderr, "%s [y/N] ", question)
	answer, err := bufio.NewReader(p.stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	default:
		return &failure{code: "interrupted", exit: exitFailed, text: "nothing was deleted"}
	}
}

// connect checks the flags and connects.
func (f deadFlags) connect(p *program) (*session, string, error) {
	id, err := f.id()
	if err != nil {
		return nil, "", err
	}
	if (id == "") != f.Bulk.All {
		return nil, "", usagef("give the id of a dead letter, or --all")
	}
	if f.Bulk.isUsed() {
		return nil, "", usagef("flags that select dead letters need --all")
	}
	s, err := f.open(p)
	return s, id, err
}

// deadVerb is what can be done to dead letters.
type deadVerb struct {
	name, past string
	// state is the letters' state afterwards.
	state string
	// dueNow: they are due then.
	dueNow bool
	do     func(members []string) ([]store.Code, error)
}

// apply applies the verb to one letter, or to all.
func (f deadFlags) apply(s *session, id string, verb deadVerb) error {
	made := inspect.Change{Action: verb.name, What: id, Key: deref(f.Key)}
	if f.Bulk.All {
		made.What = operate.FilterText(&inspect.Filter{State: inspect.StateDead})
	}
	return s.audited(&made, func() error {
		if f.Bulk.All {
			return s.applyAll(verb, &made)
		}
		return f.applyOne(s, id, verb, &made)
	})
}

func (f deadFlags) applyOne(s *session, id string, verb deadVerb, made *inspect.Change) error {
	found, err := s.findDead(id, f.Key)
	if err != nil {
		return s.fail(verb.name, id, err)
	}
	s.resetTimer()
	letter := message.DeadLetter{Message: found.Message, Member: message.Member(found.ID, found.Key)}
	done, stuck, err := s.applySome(verb, []message.DeadLetter{letter})
	if made.Key = found.Key; done > 0 {
		made.Answer = "done"
	}
	switch {
	case err != nil:
		return s.fail(verb.name, id, err)
	case stuck > 0:
		return &failure{code: "no_body", exit: exitRefused, id: id, text: fmt.Sprintf("%q has lost its body: it can only be purged", id)}
	case done == 0:
		return s.fail(verb.name, id, delay.ErrNotFound)
	case !s.asJSON:
		_, err = fmt.Fprintf(s.program.stdout, "%s %s\n", verb.past, id)
	}
	return err
}

// applyAll applies the verb to the letters that were dead when it began: a message that
// dies again must not keep it going for ever.
func (s *session) applyAll(verb deadVerb, made *inspect.Change) error {
	if _, err := s.Store.AwaitLayout(s.ctx); err != nil && !errors.Is(err, delay.ErrNoLayout) {
		return s.fail(verb.name+" dead letters of", "", err) // It sets the clock, too.
	}
	until := s.Store.Now()
	total := 0
	for {
		letters, err := s.collect(until)
		if err != nil {
			return s.fail(verb.name+" dead letters of", "", err)
		}
		done, stuck, err := s.applySome(verb, letters)
		total += done
		made.Answer = operate.Tally{"done": total}.String()
		switch {
		case err != nil:
			return s.fail(fmt.Sprintf("%s %s of", verb.past, count(total, "dead letter")), "", err)
		case len(letters) == deadChunk && done > 0:
			continue
		}
		return s.reportAll(verb, total, stuck)
	}
}

func (s *session) reportAll(verb deadVerb, total, stuck int) error {
	if !s.asJSON {
		if _, err := fmt.Fprintf(s.program.stdout, "%s %s of queue %s\n", verb.past, count(total, "dead letter"), s.Name); err != nil {
			return err
		}
	}
	if stuck > 0 {
		text := fmt.Sprintf("%s without a body stay: they can only be purged", count(stuck, "dead letter"))
		return &failure{code: "no_body", exit: exitRefused, text: text}
	}
	return nil
}

// collect returns the first dead letters that died before an instant. Their
// bodies are dropped, so that a thousand large ones fit.
func (s *session) collect(until time.Time) ([]message.DeadLetter, error) {
	var letters []message.DeadLetter
	err := s.deadLetters(func(letter *message.DeadLetter) bool {
		if !letter.DiedAt.After(until) {
			letter.Body, letter.Headers = nil, nil
			letters = append(letters, *letter)
		}
		return len(letters) < deadChunk
	})
	return letters, err
}

// applySome applies the verb to letters and counts those of which it could be done, and the others.
func (s *session) applySome(verb deadVerb, letters []message.DeadLetter) (done, stuck int, err error) {
	members := make([]string, len(letters))
	for i := range letters {
		members[i] = letters[i].Member
	}
	codes, err := verb.do(members)
	s.resetTimer()
	for i, code := range codes {
		switch code {
		case store.Done:
			done++
		case store.NoBody:
			stuck++
			continue
		default: // Not there any more, or not reached.
			continue
		}
		if !s.asJSON {
			continue
		}
		letter := &letters[i]
		if verb.dueNow {
			letter.DueAt = s.Store.Now()
		}
		if errWrite := writeJSON(s.program.stdout, letterJSON(s.Name, letter, verb.state)); errWrite != nil {
			return done, stuck, errors.Join(err, errWrite)
		}
	}
	return done, stuck, err
}
