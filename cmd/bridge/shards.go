package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/delaybridge/delaybridge/internal/app"
	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/store"
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
	layout, err := s.queue.AwaitLayout(s.ctx)
	if err != nil {
		return s.fail("list shards of", "", err)
	}
	shards := make([]store.ShardStats, layout.Polled())
	for i := range shards {
		if shards[i], err = s.queue.Admin().Stats(s.ctx, i); err != nil {
			return s.fail("list shards of", "", err)
		}
		s.answered()
	}
	unconfirmed, err := s.unconfirmed()
	if err != nil {
		return s.fail("list shards of", "", err)
	}
	paused, err := s.queue.Admin().Paused(s.ctx)
	if err != nil {
		return s.fail("list shards of", "", err)
	}
	if !c.json() {
		if err := s.describePaused(paused); err != nil {
			return err
		}
		return s.describeShards(layout, shards, app.Unconfirmed(unconfirmed))
	}
	for i := range shards {
		shard := shardToJSON(s.name, i, layout, &shards[i])
		if since, isPaused := paused[""]; isPaused {
			waits := int(shard.Waiting - shard.Parked)
			shard.Routes = append(shard.Routes, routeJSON{Reason: "paused", Since: stamp(since), Messages: waits})
		}
		if i < len(unconfirmed) && unconfirmed[i] != nil {
			shard.Unconfirmed = unconfirmed[i].Error()
		}
		if err := writeJSON(s.program.stdout, shard); err != nil {
			return err
		}
	}
	return nil
}

// unconfirmed asks Redis whether it confirms what the queue's durability asks.
func (s *session) unconfirmed() ([]error, error) {
	if !app.Durability(s.config).Asked() {
		return nil, nil
	}
	defer s.answered()
	return s.queue.Admin().Unconfirmed(s.ctx)
}

// describeShards writes a line a shard, and the sums.
func (s *session) describeShards(layout *store.Layout, shards []store.ShardStats, unconfirmed error) error {
	tabs := tabwriter.NewWriter(s.program.stdout, 0, 0, 2, ' ', 0)
	line := func(cells ...any) {
		_, _ = fmt.Fprintf(tabs, strings.TrimSuffix(strings.Repeat("%v\t", len(cells)), "\t")+"\n", cells...) // Flush has the error.
	}
	line("SHARD", "HOLDER", "WAITING", "PARKED", "DUE", "IN FLIGHT", "DEAD", "OLDEST DUE")
	var all store.ShardStats
	for i := range shards {
		shard := &shards[i]
		holder := message.InstanceName(shard.Holder)
		if holder == "" {
			holder = "nobody"
		}
		line(i, holder, shard.Waiting, shard.Parked, shard.Due, shard.InFlight, shard.Dead, late(shard))
		all.Waiting, all.Due, all.Dead = all.Waiting+shard.Waiting, all.Due+shard.Due, all.Dead+shard.Dead
		all.InFlight, all.OldestDueAge = all.InFlight+shard.InFlight, max(all.OldestDueAge, shard.OldestDueAge)
		all.Parked, all.Routes = all.Parked+shard.Parked, append(all.Routes, shard.Routes...)
	}
	line("all", "", all.Waiting, all.Parked, all.Due, all.InFlight, all.Dead, late(&all))
	if err := tabs.Flush(); err != nil {
		return err
	}
	if err := s.describeRoutes(all.Routes); err != nil {
		return err
	}
	if unconfirmed != nil {
		if _, err := fmt.Fprintf(s.program.stdout, "\nnothing is published, durability is %s: %v\n", s.config.Durability, unconfirmed); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(s.program.stdout, "\nqueue %s has %s in layout %s\n%s", s.name, count(layout.Shards, "shard"), layout.Epoch, progress(layout, shards))
	return err
}

// describeRoutes writes a line for each route that messages are parked for, over
// all shards: the one with the most messages first.
func (s *session) describeRoutes(parked []message.ParkedRoute) error {
	if len(parked) == 0 {
		return nil
	}
	byName := map[string]*message.ParkedRoute{}
	for _, p := range parked {
		sum := byName[p.Route]
		if sum == nil {
			byName[p.Route] = &p
			continue
		}
		sum.Messages += p.Messages
		if p.Since.Before(sum.Since) {
			sum.Since, sum.Reason = p.Since, p.Reason
		}
	}
	routes := slices.SortedFunc(maps.Values(byName), func(a, b *message.ParkedRoute) int {
		return cmp.Or(cmp.Compare(b.Messages, a.Messages), cmp.Compare(a.Route, b.Route))
	})
	tabs := tabwriter.NewWriter(s.program.stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintf(tabs, "\nROUTE\tPARKED\tREASON\tSINCE\n") // Flush has the error.
	for _, r := range routes {
		_, _ = fmt.Fprintf(tabs, "%s\t%d\t%s\t%s\n", r.Route, r.Messages, r.Reason, r.Since.UTC().Format(time.RFC3339))
	}
	return tabs.Flush()
}

// progress says how far a change of the shards is; nothing where none is under way.
func progress(layout *store.Layout, shards []store.ShardStats) string {
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
func late(shard *store.ShardStats) string {
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

func shardToJSON(queue string, index int, layout *store.Layout, shard *store.ShardStats) shardJSON {
	return shardJSON{
		Queue: queue, Shard: index, Epoch: shard.Epoch, Shards: layout.Shards,
		Drained: shard.Drained || len(layout.Earlier) == 0, Holder: message.InstanceName(shard.Holder),
		Waiting: shard.Waiting, Parked: shard.Parked, Routes: routesToJSON(shard.Routes), Due: shard.Due, InFlight: shard.InFlight, Dead: shard.Dead,
		OldestDueAge: shard.OldestDueAge.Round(time.Millisecond).Seconds(), NextDue: stamp(shard.NextDue),
	}
}
