package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/verify"
	"github.com/delaybridge/delaybridge/internal/operate"
)

// verifyPatience is how long a verification may make no progress.
const verifyPatience = 60 * time.Second

type verifyCommand struct {
	queuesFlags
	Repair bool      `help:"Repair what needs no guess, and say what was done."`
	Rate   perSecond `default:"10000/s" placeholder:"N/s" help:"The most entries per second."`
}

func (verifyCommand) Help() string {
	return `Reads all that the queue has in Redis, in small steps, beside producers and bridges, and prints
inconsistencies: a message without a body, a body that neither waits nor is in flight, a claim without a
deadline, an index or a history that differs from the messages, counters that do not add up. Before it
reports a suspect, a script checks it again atomically.

With --repair, messages that lost their body or due time go to the dead letters, with that reason, and
indexes are corrected; no message is deleted. What it cannot judge, it reports and leaves alone.

Exit code 3: an inconsistency was found and not repaired.

Example:

    bridge verify --config bridge.yaml
    bridge verify --config bridge.yaml orders --repair --rate 2000/s`
}

func (c verifyCommand) Run(p *program) error {
	all, err := c.open(p)
	if err != nil {
		return err
	}
	defer all[0].close()
	all[0].silent.Stop() // Each step has the store's own limit.
	left := 0
	list := c.listing(p.stdout, "QUEUE", "SHARD", "WHAT", "ID", "KEY", "MENDED", "DETAIL")
	for _, s := range all {
		sums, err := c.audited(s, list)
		left += sums.found - sums.mended
		if err != nil {
			return list.end(s.fail("verify", "", err), "")
		}
		if _, err := fmt.Fprintln(p.stderr, "bridge: "+sums.text(s.Name)); err != nil {
			return err
		}
	}
	if err := list.end(nil, ""); err != nil || left == 0 {
		return err
	}
	f := &failure{code: "not_whole", exit: exitRefused, text: count(left, "thing") + " not whole"}
	if !c.Repair {
		f.hint = "--repair mends what can be mended"
	}
	return f
}

// verifyResult is what came of a verification.
type verifyResult struct {
	looked        int64
	found, mended int
}

func (v *verifyResult) text(queue string) string {
	text := fmt.Sprintf("queue %s: looked at %d entries, all whole", queue, v.looked)
	if v.found > 0 {
		text = fmt.Sprintf("queue %s: looked at %d entries, %s not whole, %d of them mended", queue, v.looked, count(v.found, "thing"), v.mended)
	}
	return text
}

// breachJSON is what is not whole, as programs see it.
type breachJSON struct {
	Queue string `json:"queue"`
	Shard int    `json:"shard"`
	What  string `json:"what"`
	// ID and Key are a message's; ID is also the token of a claim or a tombstone.
	ID     string `json:"id"`
	Key    string `json:"key"`
	Tag    string `json:"tag,omitempty"`
	Detail string `json:"detail,omitempty"`
	Mended bool   `json:"mended"`
}

// audited verifies, and writes down what it has mended.
func (c verifyCommand) audited(s *session, list *listing) (sums verifyResult, err error) {
	if !c.Repair {
		return c.verify(s, list)
	}
	made := inspect.Change{Action: "verify --repair"}
	err = s.audited(&made, func() (err error) {
		sums, err = c.verify(s, list)
		made.Answer = operate.Tally{"found": sums.found, "mended": sums.mended}.String()
		return err
	})
	return sums, err
}

func (c verifyCommand) verify(s *session, list *listing) (sums verifyResult, err error) {
	progress := newProgressBar(s.program.stderr, s.Name, "entry")
	defer progress.end()
	ctx, cancel := context.WithCancelCause(s.ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(verifyPatience, func() { cancel(fmt.Errorf("no answer for %v", verifyPatience)) })
	defer stalled.Stop()
	options := verify.Options{
		Mend: c.Repair, Rate: int(c.Rate),
		Progress: func(looked, total int64) {
			stalled.Reset(verifyPatience)
			sums.looked = looked
			progress.show(looked, total, fmt.Sprintf("%d not whole", sums.found))
		},
	}
	err = verify.Run(ctx, s.Store, options, func(b verify.Breach) error {
		if sums.found++; b.Mended {
			sums.mended++
		}
		progress.end()
		return list.row(func() any { return breachView(s.Name, &b) }, breachCells(s.Name, &b)...)
	})
	switch {
	case errors.Is(err, delay.ErrNoLayout):
		return sums, nil // Nobody has ever used the queue.
	case err != nil && s.program.ctx.Err() == nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return sums, err
}

func breachView(queue string, b *verify.Breach) breachJSON {
	id, key := message.SplitMember(b.Name)
	return breachJSON{Queue: queue, Shard: b.Shard, What: string(b.Kind), ID: id, Key: key, Tag: b.Tag, Detail: b.Detail, Mended: b.Mended}
}

func breachCells(queue string, b *verify.Breach) []any {
	id, key := message.SplitMember(b.Name)
	mended, detail := "no", b.Detail
	if b.Mended {
		mended = "yes"
	}
	if b.Tag != "" {
		detail = "tag " + b.Tag
	}
	return []any{queue, b.Shard, b.Kind, printableLine(id), printableLine(key), mended, detail}
}
