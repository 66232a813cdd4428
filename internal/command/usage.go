package command

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/delaybridge/delaybridge/internal/operate"
)

type usageCommand struct {
	queuesFlags
	PerGiB     *float64 `name:"per-gib" placeholder:"PRICE" help:"What a GiB costs: adds a column with the price of the bytes."`
	PerMillion *float64 `placeholder:"PRICE" help:"What a million published messages cost: adds a column with the price of what was published."`
}

func (usageCommand) Help() string {
	return `BYTES estimates what the messages that wait, are in flight and are dead take in Redis, as budgets count them: for each 270 bytes and the average
stored size of those that wait, from some random ones; not the history, recurring schedules and other keys of the queue. SCHEDULED and PUBLISHED
are counted since the queue was made (-o wide: SINCE), copies included; ask Prometheus for a month (see docs/queues.md). % is the part of all that
are listed. What is not known is -, and so is each sum that it is part of; exit code 1 then.

Example:

    bridge usage --config bridge.yaml
    bridge usage --config bridge.yaml --per-gib 3.5 --per-million 0.40`
}

func (c usageCommand) Run(p *program) error {
	if err := c.checkPrices(); err != nil {
		return err
	}
	all, err := c.open(p)
	if err != nil {
		return err
	}
	defer all[0].close()
	all[0].silent.Stop() // Each look has a limit of its own.
	looks := lookAt(p.ctx, all, nil)
	seen := make([]*operate.Look, len(looks))
	var problems []error
	for i := range looks {
		seen[i] = looks[i].Look
		if looks[i].hasFailed() {
			problems = append(problems, all[i].fail("look at", "", looks[i].err))
		}
	}
	usage := operate.ViewUsage(seen)
	if c.json() {
		err = writeJSON(p.stdout, usage)
	} else {
		err = c.print(p, &usage)
	}
	return errors.Join(err, errors.Join(problems...))
}

func (c usageCommand) checkPrices() error {
	for flag, price := range map[string]*float64{"--per-gib": c.PerGiB, "--per-million": c.PerMillion} {
		switch {
		case price == nil:
		case *price < 0 || math.IsNaN(*price) || math.IsInf(*price, 0):
			return usagef("%s: %v is no price: give a number of at least 0", flag, *price)
		case c.json():
			return usagef("%s adds a column to the table: leave it out with -o json", flag)
		}
	}
	return nil
}

// print prints the sum of each owner, and below it the owner's queues.
func (c usageCommand) print(p *program, u *operate.Usage) error {
	columns := []string{"OWNER", "QUEUE", "WAITING", "IN FLIGHT", "DEAD", "BYTES", "%", "SCHEDULED", "PUBLISHED", "%"}
	if c.PerGiB != nil {
		columns = append(columns, "PRICE OF BYTES")
	}
	if c.PerMillion != nil {
		columns = append(columns, "PRICE OF PUBLISHED")
	}
	list := c.listing(p.stdout, append(columns, "+SINCE")...)
	line := func(owner, queue string, f *operate.UsageFigures, bytes, published, since string) error {
		return list.row(nil, c.cells(owner, queue, f, bytes, published, since)...)
	}
	queues := 0
	for i := range u.Owners {
		o := &u.Owners[i]
		queues += len(o.Queues)
		if err := line(cmp.Or(printableLine(o.Owner), "no owner"), count(len(o.Queues), "queue"), &o.UsageFigures, percent(o.ByteShare), percent(o.PublishedShare), ""); err != nil {
			return err
		}
		for i := range o.Queues {
			q := &o.Queues[i]
			if err := line("", q.Name, &q.UsageFigures, "", "", cmp.Or(q.Since, "-")); err != nil {
				return err
			}
		}
	}
	if err := line("all", count(queues, "queue"), &u.Total, "", "", ""); err != nil {
		return err
	}
	return list.end(nil, "")
}

// cells are one a column.
func (c usageCommand) cells(owner, queue string, f *operate.UsageFigures, bytes, published, since string) []any {
	taken := "-"
	if f.Bytes != nil {
		taken = inBytes(*f.Bytes)
	}
	cells := []any{owner, queue, known(f.Waiting), known(f.InFlight), known(f.Dead), taken, bytes, known(f.Scheduled), known(f.Published), published}
	if c.PerGiB != nil {
		cells = append(cells, price(f.Bytes, *c.PerGiB/(1<<30)))
	}
	if c.PerMillion != nil {
		cells = append(cells, price(f.Published, *c.PerMillion/1e6))
	}
	return append(cells, since)
}

// percent is a share as people say it, or a dash if it is not known.
func percent(share *float64) string {
	if share == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", 100**share)
}

// price is what so many cost.
func price(n *int64, each float64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(*n)*each)
}
