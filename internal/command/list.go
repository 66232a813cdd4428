package command

import (
	"fmt"
	"strings"

	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
)

type listCommand struct {
	queueFlags
	filterFlags
	Limit  int    `default:"100" help:"Most to list; it says if there are more."`
	Cursor string `placeholder:"CURSOR" help:"Continue where an earlier list ended."`
	Body   bool   `help:"Show the bodies, in JSON as base64, except those whose encryption key the configuration does not have."`
}

// filterFlags say which messages are meant.
type filterFlags struct {
	State string `placeholder:"STATE" help:"Their state: scheduled, parked, in_flight or dead."`
	Key   string `placeholder:"KEY" help:"Their key."`
	narrowFlags
}

// narrowFlags are those that each command with a filter has.
type narrowFlags struct {
	Topic          string   `placeholder:"TOPIC" help:"Their topic."`
	Tag            string   `placeholder:"TAG" help:"One of their tags."`
	IDPrefix       string   `name:"id-prefix" placeholder:"TEXT" help:"How their ids begin."`
	DueFrom        *instant `placeholder:"TIME" help:"Due at this time or later, RFC 3339."`
	DueTo          *instant `placeholder:"TIME" help:"Due before this time, RFC 3339."`
	Reason         string   `placeholder:"TEXT" help:"Why they are dead, exactly."`
	ReasonContains string   `placeholder:"TEXT" help:"A part of the reason why they are dead."`
}

// filter is what the flags say.
func (f filterFlags) filter() inspect.Filter {
	filter := f.narrow()
	filter.State, filter.Key = inspect.State(f.State), f.Key
	return filter
}

func (f narrowFlags) narrow() inspect.Filter {
	return inspect.Filter{Topic: f.Topic, Tag: f.Tag, IDPrefix: f.IDPrefix, Reason: f.Reason, ReasonContains: f.ReasonContains, From: f.DueFrom.time(), To: f.DueTo.time()}
}

func (listCommand) Help() string {
	return `Waiting messages come first, in due order, then those that are parked, in flight and dead. A message
that will be tried again counts by that time. With --tag the order is by key and id, whatever the state.

Example:

    bridge list --config bridge.yaml --queue orders --key customer-7 --due-to 2027-01-31T09:00:00Z`
}

func (c listCommand) Run(p *program) error {
	if c.Limit < 1 {
		return usagef("--limit %d: must be 1 or more", c.Limit)
	}
	if c.Body && !c.json() {
		return usagef("--body needs -o json here; `bridge get --body` shows one as text")
	}
	s, err := c.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	list := c.listing(p.stdout, "ID", "KEY", "TOPIC", "STATE", "DUE", "ATTEMPT", "+SCHEDULED", "+BYTES", "+TAGS")
	next, err := c.list(s, list)
	err = list.end(err, "no such messages in queue %s", s.Name)
	switch {
	case err != nil:
		return s.fail("list messages of", "", err)
	case next != "":
		_, _ = fmt.Fprintf(s.program.stderr, "bridge: there may be more than these %d: go on with --cursor %s\n", list.rows, next)
	}
	return err
}

// list asks for page after page until it has that many.
func (c listCommand) list(s *session, list *listing) (next string, err error) {
	request := inspect.ListRequest{Filter: c.filter(), After: c.Cursor}
	for {
		request.Limit = min(c.Limit-list.rows, inspect.MaxList)
		page, err := s.List(s.ctx, request)
		if err != nil {
			return "", err
		}
		s.resetTimer()
		for i := range page.Messages {
			if err := c.row(s, list, &page.Messages[i]); err != nil {
				return "", err
			}
		}
		if page.Next == "" || list.rows == c.Limit {
			return page.Next, nil
		}
		request.After = page.Next
	}
}

func (c listCommand) row(s *session, list *listing, m *inspect.ListItem) error {
	found := &m.Found
	return list.row(func() any {
		view := operate.ViewMessage(found, m.State)
		if c.Body {
			view = s.withBody(view, &found.Message)
		}
		return view
	}, found.ID, found.Key, found.Topic, m.State, formatTime(found.DueAt)+relative(found.DueAt, s.Store.Now()), found.Attempt,
		formatTime(found.ScheduledAt), len(found.Body), strings.Join(found.Tags(), " "))
}
