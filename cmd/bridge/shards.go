package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/upkeep"
)

type shardsCommands struct {
	List shardsListCommand `cmd:"" help:"Show each shard: who polls it, and what it holds."`
	Set  shardsSetCommand  `cmd:"" help:"Change how many shards the queue has, while it is in use."`
}

type shardsListCommand struct{ queueFlags }

func (shardsListCommand) Help() string {
	return `HOLDER is the instance that polls the shard now; without one nothing is published from it.

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
	unconfirmed, err := s.unconfirmed()
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
		stats, err = inspect.NewAdmin(s.queue).StatsOfAll(s.ctx)
		return err
	})
	return stats, err
}

// unconfirmed asks Redis whether it confirms what the queue's durability asks.
func (s *session) unconfirmed() ([]error, error) {
	if !s.config.Confirmation().Asked() {
		return nil, nil
	}
	defer s.answered()
	return s.queue.Unconfirmed(s.ctx)
}

// listShards prints a line a shard, and for people the sums.
func (s *session) listShards(output outputFlag, stats *inspect.QueueStats, unconfirmed []error) error {
	list := output.listing(s.program.stdout,
		"SHARD", "HOLDER", "WAITING", "PARKED", "DUE", "IN FLIGHT", "DEAD", "OLDEST DUE", "+NEXT DUE", "+CLAIMS", "+EPOCH", "+DRAINED")
	for i := range stats.Shards {
		shard := &stats.Shards[i]
		view := shardToJSON(s.name, i, stats)
		if i < len(unconfirmed) && unconfirmed[i] != nil {
			view.Unconfirmed = unconfirmed[i].Error()
		}
		holder := cmp.Or(view.Holder, "nobody")
		if err := list.row(func() any { return view }, i, holder, shard.Waiting, shard.Parked, shard.Due, shard.InFlight, shard.Dead, late(shard),
			dash(shard.NextDue), shard.Claims, shard.Epoch, view.Drained); err != nil {
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
	_, err := fmt.Fprintf(s.program.stdout, "\nqueue %s has %s in layout %s\n%s", s.name, count(stats.Layout.Shards, "shard"), stats.Layout.Epoch,
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

// progress says how far a change of the shards is; nothing where none is under way.
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

// shardJSON is a shard as programs see it.
type shardJSON struct {
	Queue string `json:"queue"`
	Shard int    `json:"shard"`
	Epoch string `json:"epoch"`
	// Shards is how many the queue has in that layout; Drained is false where
	// messages of an earlier layout may be left.
	Shards   int    `json:"shards"`
	Drained  bool   `json:"drained"`
	Holder   string `json:"holder"`
	Waiting  int64  `json:"waiting"`
	Parked   int64  `json:"parked"`
	Due      int64  `json:"due"`
	InFlight int64  `json:"in_flight"`
	Dead     int64  `json:"dead"`
	// OldestDueAge is in seconds, 0 where nothing is due.
	OldestDueAge float64 `json:"oldest_due_age"`
	// NextDue is null where nothing waits.
	NextDue *string `json:"next_due_at"`
	// Routes are those that messages are parked for. Where the whole queue is paused,
	// one without a name is what waits and is not parked.
	Routes []routeJSON `json:"routes,omitempty"`
	// Unconfirmed is why nothing is published, where Redis does not confirm what the
	// queue's durability asks.
	Unconfirmed string `json:"unconfirmed,omitempty"`
}

type routeJSON struct {
	Route    string  `json:"route"`
	Reason   string  `json:"reason"`
	Since    *string `json:"since"`
	Messages int     `json:"messages"`
}

func routesToJSON(parked []message.ParkedRoute) []routeJSON {
	routes := make([]routeJSON, len(parked))
	for i, p := range parked {
		routes[i] = routeJSON{Route: p.Route, Reason: p.Reason, Since: stamp(p.Since), Messages: p.Messages}
	}
	return routes
}

func shardToJSON(queue string, index int, stats *inspect.QueueStats) shardJSON {
	shard := &stats.Shards[index]
	view := shardJSON{
		Queue: queue, Shard: index, Epoch: shard.Epoch, Shards: stats.Layout.Shards,
		Drained: shard.Drained || len(stats.Layout.Earlier) == 0, Holder: message.InstanceName(shard.Holder),
		Waiting: shard.Waiting, Parked: shard.Parked, Routes: routesToJSON(shard.Routes), Due: shard.Due, InFlight: shard.InFlight, Dead: shard.Dead,
		OldestDueAge: shard.OldestDueAge.Round(time.Millisecond).Seconds(), NextDue: stamp(shard.NextDue),
	}
	if pause, isPaused := stats.Paused[""]; isPaused {
		view.Routes = append(view.Routes, routeJSON{Reason: "paused", Since: stamp(pause.Since), Messages: int(shard.Waiting - shard.Parked)})
	}
	return view
}
