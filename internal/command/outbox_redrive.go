package command

import (
	"fmt"
	"slices"

	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

type outboxRedriveCommand struct {
	outboxFlags
	Queue  string  `required:"" placeholder:"QUEUE" help:"The queue; it need not be one of the configuration."`
	ID     string  `arg:"" optional:"" help:"The message's id. Or --all."`
	Key    string  `placeholder:"KEY" help:"The message's key."`
	All    bool    `help:"All refused messages of the queue."`
	Reason *string `placeholder:"TEXT" help:"With --all: only those with exactly this reason, as listed."`
	DryRun bool    `help:"Only count what it would change."`
}

func (outboxRedriveCommand) Help() string {
	return `Makes refused messages pending again, as if they had just been written; if they are still wrong, they are refused again.
A message is left alone as overtaken if the outbox has a later row for it (a cancel, another message), or if another message of
its identity lives. Refused cancels and reschedules are not tried again: repeat them at the producer.
Exit code 3: there is no such refused message, or it was overtaken.

Example:

    bridge outbox redrive --config bridge.yaml --queue orders order-42/timeout
    bridge outbox redrive --config bridge.yaml --queue orders --all --reason "invalid topic" --dry-run`
}

func (c outboxRedriveCommand) Run(p *program) error {
	switch {
	case (c.ID != "") == c.All:
		return usagef("give the id of a refused message, or --all")
	case c.Reason != nil && !c.All:
		return usagef("--reason needs --all")
	case c.Key != "" && c.All:
		return usagef("--key needs the id of a message")
	}
	if !c.All {
		if err := invalidIdentity(c.ID, c.Key); err != nil {
			return err
		}
	}
	var total table.Tally
	err := c.eachOutbox(p, func(name string, db *table.Database) error {
		tally, err := c.redrive(p, db)
		total.Redriven, total.Overtaken = total.Redriven+tally.Redriven, total.Overtaken+tally.Overtaken
		if printed := c.print(p, name, tally); printed != nil {
			return printed
		}
		if err != nil {
			return listError(name, err)
		}
		return nil
	})
	if err != nil || c.All || total.Redriven > 0 {
		return err
	}
	text := fmt.Sprintf("queue %s has no refused message %q", c.Queue, c.ID)
	if total.Overtaken > 0 {
		text = fmt.Sprintf("%q was overtaken: the outbox has something later of it; bridge outbox show tells", c.ID)
	}
	return &failure{code: "not_found", exit: exitRefused, id: c.ID, text: text}
}

// redrive goes through one outbox.
func (c outboxRedriveCommand) redrive(p *program, db *table.Database) (total table.Tally, err error) {
	refused := db.Refused()
	if !c.All {
		numbers, err := refused.Of(p.ctx, table.Identity{Queue: c.Queue, Key: c.Key, ID: c.ID})
		if err == nil {
			err = c.redriveRows(p, refused, numbers, &total)
		}
		return total, err
	}
	for next := int64(0); ; {
		var numbers []int64
		if numbers, next, err = refused.After(p.ctx, c.Queue, c.Reason, next); err != nil {
			return total, err
		}
		if err = c.redriveRows(p, refused, numbers, &total); err != nil || next == 0 {
			return total, err
		}
	}
}

func (c outboxRedriveCommand) redriveRows(p *program, refused table.RefusedRows, numbers []int64, total *table.Tally) error {
	for chunk := range slices.Chunk(numbers, table.BatchRows) {
		tally, err := refused.Redrive(p.ctx, chunk, c.DryRun)
		if err != nil {
			return err
		}
		total.Redriven, total.Overtaken, total.Busy = total.Redriven+tally.Redriven, total.Overtaken+tally.Overtaken, total.Busy+tally.Busy
	}
	return nil
}

func (c outboxRedriveCommand) print(p *program, name string, t table.Tally) error {
	if c.json() {
		return writeJSON(p.stdout, map[string]any{
			"outbox": name, "queue": c.Queue, "redriven": t.Redriven, "overtaken": t.Overtaken, "busy": t.Busy, "dry_run": c.DryRun,
		})
	}
	verb := "redriven"
	if c.DryRun {
		verb = "to be redriven"
	}
	_, err := fmt.Fprintf(p.stdout, "%d %s, %d overtaken, %d busy\n", t.Redriven, verb, t.Overtaken, t.Busy)
	return err
}
