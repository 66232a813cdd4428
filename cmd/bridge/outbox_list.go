package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

type outboxListCommand struct {
	outboxFlags
	Queue  string `placeholder:"QUEUE" help:"Only rows of this queue; it need not be one of the configuration."`
	State  string `placeholder:"STATE" help:"Only rows of this state: ${outbox_states}."`
	Limit  int    `default:"100" help:"Most to list; says when there are more."`
	Cursor int64  `placeholder:"ROW" help:"Go on behind this row."`
}

func (outboxListCommand) Help() string {
	return `The oldest rows come first. A schedule's row is pending until Redis has it (which is the outbox' horizon before it is due), then
stored until its message has ended. A cancel's or reschedule's row says what became of it. Bodies are not read.

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
	tabs := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	filter := table.Filter{Queue: c.Queue, State: c.State, After: c.Cursor}
	for shown := 0; ; {
		filter.Limit = c.Limit + 1 - shown
		page, err := db.Listing().List(p.ctx, filter)
		if err != nil {
			return errors.Join(tabs.Flush(), listError(name, err))
		}
		for i := range page {
			if shown == c.Limit {
				_, _ = fmt.Fprintf(p.stderr, "bridge: there are more than these %d; --cursor %d shows the next\n", shown, filter.After)
				return tabs.Flush()
			}
			if err := c.print(p, tabs, name, &page[i], shown == 0); err != nil {
				return err
			}
			filter.After = page[i].Number
			shown++
		}
		if len(page) == 0 {
			if shown == 0 && !c.json() {
				_, err = fmt.Fprintln(p.stdout, "no such rows")
			}
			return errors.Join(err, tabs.Flush())
		}
	}
}

func (c outboxListCommand) print(p *program, tabs *tabwriter.Writer, name string, e *table.Entry, first bool) error {
	if c.json() {
		return writeJSON(p.stdout, entryToJSON(name, e))
	}
	if first {
		_, _ = fmt.Fprintln(tabs, "ROW\tQUEUE\tID\tKEY\tTOPIC\tVERB\tSTATE\tDUE\tAGE\tREASON") // Flush has the error.
	}
	_, err := fmt.Fprintf(tabs, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
		e.Number, e.Queue, e.ID, e.Key, e.Topic, e.Verb, e.State, dash(e.DueAt), about(e.Age), strings.Join(strings.Fields(e.Reason), " "))
	return err
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
	Key   *string `placeholder:"KEY" help:"The message's key. Without it the rows of all messages of that id are shown."`
}

func (outboxShowCommand) Help() string {
	return `The rows are in the order of their revisions: what was asked for last is last. Exit code 3: there are none.

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
	tabs := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	for i := range rows {
		e := &rows[i]
		if c.json() {
			if err := writeJSON(p.stdout, entryToJSON(name, e)); err != nil {
				return err
			}
			continue
		}
		if i == 0 {
			_, _ = fmt.Fprintln(tabs, "ROW\tKEY\tTOPIC\tVERB\tSTATE\tDUE\tCREATED\tFINISHED\tBYTES\tREASON") // Flush has the error.
		}
		_, _ = fmt.Fprintf(tabs, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", e.Number, e.Key, e.Topic, e.Verb, e.State,
			dash(e.DueAt), dash(e.CreatedAt), dash(e.FinishedAt), e.Size, strings.Join(strings.Fields(e.Reason), " "))
	}
	return tabs.Flush()
}
