package command

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
)

// setPatience is how long the command tries; others finish what it has begun.
const setPatience = 50 * time.Second

type shardsSetCommand struct {
	queueFlags
	Shards int `arg:"" name:"n" help:"The new number of shards."`
}

func (shardsSetCommand) Help() string {
	return `Producers, cancels and bridges keep working meanwhile. Messages stay in their shards until they are due; bridges poll a removed
shard until it is empty. The command returns when the new number is in force. If it breaks off, the bridge finishes the change,
or repeat the command. ` + "`bridge shards list`" + ` shows the progress.

Example:

    bridge shards set 16 --config bridge.yaml --queue orders`
}

func (c shardsSetCommand) Run(p *program) error {
	if c.Shards < 1 || c.Shards > store.MaxShards {
		return usagef("shards %d: must be from 1 to %d", c.Shards, store.MaxShards)
	}
	s, err := c.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	before, err := s.Store.AwaitLayout(s.ctx)
	if err != nil {
		return s.fail("change the shards of", "", err)
	}
	var now *store.Layout
	err = s.audited(&inspect.Change{Action: "shards set", What: strconv.Itoa(c.Shards)}, func() (err error) {
		now, err = c.set(s)
		return err
	})
	switch {
	case err != nil:
		return err
	case c.json():
		return writeJSON(s.program.stdout, layoutJSON{Queue: s.Name, Shards: now.Shards, Epoch: now.Epoch, Earlier: append([]int{}, now.Earlier...)})
	case before.Epoch == now.Epoch:
		_, err = fmt.Fprintf(s.program.stdout, "queue %s has %s already\n", s.Name, count(now.Shards, "shard"))
	default:
		_, err = fmt.Fprintf(s.program.stdout, "queue %s has %s now, %d before\n", s.Name, count(now.Shards, "shard"), before.Shards)
	}
	return err
}

func (c shardsSetCommand) set(s *session) (now *store.Layout, err error) {
	err = s.walk(func() (err error) {
		ctx, cancel := context.WithTimeout(s.ctx, setPatience)
		defer cancel()
		now, err = s.Store.Layouts().SetShards(ctx, c.Shards)
		return err
	})
	if errors.Is(err, layout.ErrEarlierLayouts) {
		text := fmt.Sprintf("queue %s: %v; wait until they have drained, see `bridge shards list`", s.Name, err)
		return nil, &failure{code: "draining", exit: exitRefused, text: text, cause: err}
	}
	return now, s.fail("change the shards of", "", err)
}

// layoutJSON is a layout as programs see it.
type layoutJSON struct {
	Queue   string `json:"queue"`
	Shards  int    `json:"shards"`
	Epoch   string `json:"epoch"`
	Earlier []int  `json:"earlier"`
}
