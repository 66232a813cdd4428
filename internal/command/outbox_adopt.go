package command

import (
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

type outboxAdoptCommand struct {
	outboxFlags
	Queue string `required:"" placeholder:"QUEUE" help:"The queue whose rows belong to this Redis from now on."`
}

func (outboxAdoptCommand) Help() string {
	return `The rows of a queue belong to one Redis, and bridges with another one take none of them: otherwise each would put back the
other's messages, and every message would come twice. If Redis was emptied, bridges adopt the rows by themselves. If a queue moves
to another existing Redis, or Redis was restored to a time before it was emptied, only you can know: stop the bridges that
have the other Redis, and run this. Then the bridges put back the messages that this Redis does not have, marked as maybe
published if they were due.

Example:

    bridge outbox adopt --config bridge.yaml --queue orders`
}

func (c outboxAdoptCommand) Run(p *program) error {
	cfg, _, err := c.load(p)
	if err != nil {
		return err
	}
	if err := isKnown("queue", c.Queue, c.Config, cfg.Queues); err != nil {
		return err
	}
	rdb, err := cfg.Redis.Open(cfg.Instance)
	if err != nil {
		return err
	}
	defer func() { _ = rdb.Close() }() // Nothing is pending.
	if err := connect(p.ctx, rdb, serverName(cfg.Redis)); err != nil {
		return err
	}
	queue := store.New(rdb, cfg.Prefix, c.Queue)
	layout, err := queue.AwaitLayout(p.ctx)
	if err != nil {
		return of("adopt", c.Queue, "", err)
	}
	return c.eachOutbox(p, func(name string, db *table.Database) error {
		answer, err := c.adopt(p, name, db, layout.Life())
		if err != nil {
			return err
		}
		writeDown(p, c.json(), queue, &inspect.Change{Action: "outbox adopt", What: name, Answer: answer})
		if c.json() {
			return writeJSON(p.stdout, map[string]string{"outbox": name, "queue": c.Queue, "life": layout.Life(), "answer": answer})
		}
		_, err = fmt.Fprintf(p.stdout, "%s: %s\n", c.Queue, answer)
		return err
	})
}

// adopt has the rows of one outbox belong to this Redis.
func (c outboxAdoptCommand) adopt(p *program, name string, db *table.Database, ours string) (answer string, err error) {
	rows, err := db.Lives().Confirm(p.ctx, c.Queue, ours)
	if err != nil {
		return "", databaseAway(name, err)
	}
	switch {
	case rows.Name == ours:
		return "its rows belong to this Redis", nil
	case rows.Silent < outbox.Lapse:
		return "", &failure{
			code: "refused", exit: exitRefused, id: c.Queue,
			text: fmt.Sprintf("outbox %s: a bridge with the other Redis was there %s ago", name, rows.Silent.Round(time.Second)),
			hint: fmt.Sprintf("stop the bridges that have the other Redis, and wait for %s", outbox.Lapse),
		}
	}
	done, err := db.Lives().Replace(p.ctx, c.Queue, rows.Name, ours)
	switch {
	case err != nil:
		return "", databaseAway(name, err)
	case !done:
		return "", &failure{code: "refused", exit: exitRefused, id: c.Queue, text: fmt.Sprintf("outbox %s: somebody else has just adopted the rows", name)}
	}
	return "its rows belong to this Redis from now on", nil
}
