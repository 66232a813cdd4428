package command

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/operate"
	"github.com/delaybridge/delaybridge/internal/upkeep"
)

type shardsCommands struct {
	List shardsListCommand `cmd:"" help:"Show each shard: who polls it, and what it holds."`
	Set  shardsSetCommand  `cmd:"" help:"Change how many shards the queue has, while it is in use."`
}

type shardsListCommand struct{ queueFlags }

func (shardsListCommand) Help() string {
	return `HOLDER is the instance that polls the shard now; without a holder, nothing of the shard is published.

Example:

    bridge shards list --config bridge.yaml --queue orders`
}

func (c shardsListCommand) Run(p *program) error {
	s, err := c.open(p)
	if err != nil {
		return err
	}
	defer s.close()
	stats, err := s.stats()
	if err != nil {
		return s.fail("list shards of", "", err)
	}
	unconfirmed, err := s.Store.Unconfirmed(s.ctx)
	if err != nil {
		return s.fail("list shards of", "", err)
	}
	if err := s.listShards(c.outputFlag, &stats, unconfirmed); err != nil || c.json() {
		return err
	}
	return s.describeQueue(&stats, upkeep.Unconfirmed(unconfirmed))
}

// stats reads what the queue holds.
func (s *session) stats() (stats inspect.QueueStats, err error) {
	err = s.walk(func() (err error) {
		stats, err = s.Admin().StatsOfAll(s.ctx)
		return err
	})
	return stats, err
}

// listShards prints a line a shard, and for people the sums.
func (s *session) listShards(output outputFlag, stats *inspect.QueueStats, unconfirmed []error) error {
	list := output.listing(s.program.stdout,
		"SHARD", "HOLDER", "WAITING", "PARKED", "DUE", "IN FLIGHT", "DEAD", "OLDEST DUE", "+NEXT DUE", "+CLAIMS", "+EPOCH", "+DRAINED")
	views := operate.ViewShards(s.Name, stats, unconfirmed)
	for i := range views {
		view, shard := &views[i], &stats.Shards[i]
		if err := list.row(func() any { return view }, i, cmp.Or(view.Holder, "nobody"), shard.Waiting, shard.Parked, shard.Due, shard.InFlight, shard.Dead,
			late(shard), dash(shard.NextDue), shard.Claims, shard.Epoch, view.Drained); err != nil {
			return err
		}
	}
	if !output.json() {
		sum := stats.Sum()
		list.line([]any{"all", "", sum.Waiting, sum.Parked, sum.Due, sum.InFlight, sum.Dead, late(&sum), dash(sum.NextDue), sum.Claims, "", ""})
	}
	return list.end(nil, "")
}

// describeQueue says what is paused or parked, and how far a change of the shards is.
func (s *session) describeQueue(stats *inspect.QueueStats, unconfirmed error) error {
	if err := describeRoutes(s.program.stdout, stats.Sum().Routes); err != nil {
		return err
	}
	if err := s.describePaused(stats.Paused); err != nil {
		return err
	}
	if unconfirmed != nil {
		if _, err := fmt.Fprintf(s.program.stdout, "\nnothing is published, durability is %s: %v\n", s.config.Durability, unconfirmed); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(s.program.stdout, "\nqueue %s has %s in layout %s\n%s", s.Name, count(stats.Layout.Shards, "shard"), stats.Layout.Epoch,
		progress(stats.Layout, stats.Shards))
	return err
}

// describeRoutes writes a line for each route that messages are parked for.
func describeRoutes(w io.Writer, routes []message.ParkedRoute) error {
	if len(routes) == 0 {
		return nil
	}
	tabs := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(tabs, "\nROUTE\tPARKED\tREASON\tSINCE\n") // Flush has the error.
	for _, r := range routes {
		_, _ = fmt.Fprintf(tabs, "%s\t%d\t%s\t%s\n", r.Route, r.Messages, r.Reason, r.Since.UTC().Format(time.RFC3339))
	}
	return tabs.Flush()
}

// progress says how far a change of the shards is; nothing if none is under way.
func progress(layout *store.Layout, shards []inspect.ShardStats) string {
	switch {
	case layout.Next != 0:
		return fmt.Sprintf("a change to %s has begun\n", count(layout.Next, "shard"))
	case len(layout.Earlier) == 0:
		return ""
	}
	var left, dead int64
	draining := 0
	for i := range shards {
		if shards[i].Drained {
			continue
		}
		draining++
		if i >= layout.Shards {
			left += shards[i].Waiting + shards[i].InFlight
			dead += shards[i].Dead
		}
	}
	if draining == 0 {
		return "the earlier shards have drained and are given up within two minutes\n"
	}
	text := fmt.Sprintf("earlier layouts live: %s may hold messages of theirs", count(draining, "shard"))
	if left+dead > 0 {
		text += fmt.Sprintf("; shards from %d on hold %s and %s", layout.Shards, count(int(left), "message"), count(int(dead), "dead letter"))
	}
	return text + "\n"
}

// late is how long the first due message has waited already.
func late(shard *inspect.ShardStats) string {
	if shard.Due == 0 {
		return "-"
	}
	return about(shard.OldestDueAge) + " ago"
}
