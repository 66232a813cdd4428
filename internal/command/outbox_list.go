package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

type outboxListCommand struct {
	outboxFlags
	Queue  string `placeholder:"QUEUE" help:"Only rows of this queue; it need not be one of the configuration."`
	State  string `placeholder:"STATE" help:"Only rows in this state: ${outbox_states}."`
	Limit  int    `default:"100" help:"Most to list; it says if there are more."`
	Cursor int64  `placeholder:"ROW" help:"Continue after this row."`
}

func (outboxListCommand) Help() string {
	return `The oldest rows come first. A schedule's row is pending until Redis has the message (from the outbox' horizon before its due time), then
stored until the message has ended. A cancel's or reschedule's row says its result. Bodies are not read.

Example:

    bridge outbox list --config bridge.yaml --state pending`
}

func (c outboxListCommand) Run(p *program) error {
	if c.Limit < 1 {
		return usagef("--limit %d: must be 1 or more", c.Limit)
	}
	if c.State != "" && !slices.Contains(table.States(), c.State) {
		return usagef("--state %q: must be one of %s", c.State, strings.Join(table.States(), ", "))
	}
	if c.Cursor != 0 && c.Name == "" {
		_, names, err := c.load(p)
		if err != nil {
			return err
		}
		if len(names) > 1 {
			return usagef("--cursor needs --name, one of %s", strings.Join(names, ", "))
		}
	}
	return c.eachOutbox(p, func(name string, db *table.Database) error { return c.list(p, name, db) })
}

// list prints page by page.
func (c outboxListCommand) list(p *program, name string, db *table.Database) error {
	list := c.listing(p.stdout, "ROW", "QUEUE", "ID", "KEY", "TOPIC", "VERB", "STATE", "DUE", "AGE", "REASON", "+CREATED", "+FINISHED", "+BYTES")
	filter := table.Filter{Queue: c.Queue, State: c.State, After: c.Cursor}
	for {
		filter.Limit = c.Limit + 1 - list.rows
		page, err := db.Listing().List(p.ctx, filter)
		if err != nil {
			return list.end(listError(name, err), "")
		}
		if len(page) == 0 {
			return list.end(nil, "no such rows")
		}
		for i := range page {
			if list.rows == c.Limit {
				_, _ = fmt.Fprintf(p.stderr, "bridge: there are more than these %d; --cursor %d shows the next\n", list.rows, filter.After)
				return list.end(nil, "")
			}
			e := &page[i]
			if err := list.row(func() any { return entryToJSON(name, e) }, e.Number, e.Queue, e.ID, e.Key, e.Topic, e.Verb, e.State,
				dash(e.DueAt), about(e.Age), strings.Join(strings.Fields(e.Reason), " "), dash(e.CreatedAt), dash(e.FinishedAt), e.Size); err != nil {
				return err
			}
			filter.After = e.Number
		}
	}
}

func listError(name string, err error) error {
	f := &failure{code: "failed", exit: exitFailed, text: fmt.Sprintf("outbox %s: %v", name, err), cause: err}
	if errors.Is(err, context.DeadlineExceeded) {
		f.hint = "fewer filters need fewer rows to be read: leave out --state and --queue, or go on from a --cursor"
	}
	return f
}

type outboxShowCommand struct {
	outboxFlags
	Queue string  `required:"" placeholder:"QUEUE" help:"The queue."`
	ID    string  `name:"id" required:"" placeholder:"ID" help:"The message's id."`
	Key   *string `placeholder:"KEY" help:"The message's key. Default: show the rows of all messages of that id."`
}

func (outboxShowCommand) Help() string {
	return `The rows are in the order of their revisions, the newest last. Exit code 3: there are none.

Example:

    bridge outbox show --config bridge.yaml --queue orders --id order-42/timeout`
}

func (c outboxShowCommand) Run(p *program) error {
	if err := invalidIdentity(c.ID, deref(c.Key)); err != nil {
		return err
	}
	found := 0
	err := c.eachOutbox(p, func(name string, db *table.Database) error {
		rows, err := db.Listing().Show(p.ctx, c.Queue, c.ID, c.Key)
		if err != nil {
			return listError(name, err)
		}
		found += len(rows)
		return c.show(p, name, rows)
	})
	if err == nil && found == 0 {
		text := fmt.Sprintf("there are no rows of %q in queue %s: none was written, or they were deleted after they had ended", c.ID, c.Queue)
		err = &failure{code: "not_found", exit: exitRefused, id: c.ID, text: text}
	}
	return err
}

func (c outboxShowCommand) show(p *program, name string, rows []table.Entry) error {
	if len(rows) == 0 {
		return nil // Another outbox may have some.
	}
	list := c.listing(p.stdout, "ROW", "KEY", "TOPIC", "VERB", "STATE", "DUE", "CREATED", "FINISHED", "BYTES", "REASON", "+AGE")
	for i := range rows {
		e := &rows[i]
		if err := list.row(func() any { return entryToJSON(name, e) }, e.Number, e.Key, e.Topic, e.Verb, e.State, dash(e.DueAt),
			dash(e.CreatedAt), dash(e.FinishedAt), e.Size, strings.Join(strings.Fields(e.Reason), " "), about(e.Age)); err != nil {
			return err
		}
	}
	return list.end(nil, "")
}
