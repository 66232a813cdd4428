package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/api"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

type statsCommand struct {
	queuesFlags
	Shards bool `help:"A line a shard, too."`
	Over   span `default:"1s" help:"How long to look for the rates: counters are read before and after. 0s: no rates."`
}

func (statsCommand) Help() string {
	return `WAITING counts all that waits, what is parked and what is due among it; DUE what is due and not parked,
OLDEST for how long the first of it has been. BYTES is about what the waiting messages themselves have (id, key, topic,
headers and body), from the sizes of some that are chosen at random: not dead letters, and not what Redis needs
besides, which FULL counts, too. IN/s and OUT/s are messages that were scheduled and published a second.
FULL is how much is taken of the queue's budget or of Redis' maxmemory, whichever has less room; with -o wide
both are there, with when they will be full if they grow on as in the last ten minutes. A bridge tells that
every ten seconds; it is - where there is no limit, or no bridge runs.

Example:

    bridge stats --config bridge.yaml
    bridge stats --config bridge.yaml orders --shards -o wide`
}

func (c statsCommand) Run(p *program) error {
	all, err := c.open(p)
	if err != nil {
		return err
	}
	defer all[0].close()
	all[0].silent.Stop() // Each look has a limit of its own.
	var before []look
	if over := time.Duration(c.Over); over > 0 {
		before = lookAt(all, nil)
		if !wait.Sleep(p.ctx, over) {
			return p.ctx.Err()
		}
	}
	looks := lookAt(all, before)
	list := c.listing(p.stdout, lookColumns...)
	for i := range looks {
		l := &looks[i]
		if l.err != nil {
			return errors.Join(list.end(nil, ""), all[i].fail("look at", "", l.err))
		}
		if l.err = l.measure(all[i]); l.err != nil {
			return errors.Join(list.end(nil, ""), all[i].fail("measure messages of", "", l.err))
		}
		if err := c.print(list, l); err != nil {
			return err
		}
	}
	if err := list.end(nil, ""); err != nil || c.json() {
		return err
	}
	return describeLooks(p.stdout, looks)
}

// describeLooks says what somebody has to do something about.
func describeLooks(w io.Writer, looks []look) error {
	for i := range looks {
		l := &looks[i]
		if shards, held := len(l.stats.Shards), l.stats.Held(); held < shards {
			if _, err := fmt.Fprintf(w, "\nqueue %s: nothing is published from %d of its %s: no bridge polls them\n",
				l.queue, shards-held, count(shards, "shard")); err != nil {
				return err
			}
		}
		if err := describeRoutes(w, l.sum.Routes); err != nil {
			return err
		}
	}
	return describeRooms(w, looks)
}

func (c statsCommand) print(list *listing, l *look) error {
	if err := list.row(l.view, l.cells()...); err != nil || !c.Shards {
		return err
	}
	for i := range l.stats.Shards {
		name := fmt.Sprintf("  %s:%d", l.queue, i)
		if holder := message.InstanceName(l.stats.Shards[i].Holder); holder != "" {
			name += " " + holder
		}
		if err := list.row(func() any { return shardToJSON(l.queue, i, &l.stats) }, l.shard(i, name).cells()...); err != nil {
			return err
		}
	}
	return nil
}

// lookTimeout bounds what a look waits for Redis.
const lookTimeout = 5 * time.Second

// look is what a queue held at one time, and what was counted since an earlier look.
type look struct {
	queue string
	at    time.Time
	stats inspect.QueueStats
	sum   inspect.ShardStats
	rooms inspect.Rooms
	// bytes is negative where it is not known.
	bytes float64
	rates *lookRates
	err   error
}

// lookRates are messages a second.
type lookRates struct {
	Scheduled float64 `json:"scheduled"`
	Published float64 `json:"published"`
	Cancelled float64 `json:"cancelled"`
	Dead      float64 `json:"dead"`
}

// lookAt looks at all queues at once; before is what an earlier look returned, or nil.
func lookAt(all []*session, before []look) []look {
	looks := make([]look, len(all))
	var looking sync.WaitGroup
	for i, s := range all {
		looking.Go(func() {
			l := &looks[i]
			ctx, cancel := context.WithTimeout(s.ctx, lookTimeout)
			defer cancel()
			*l = look{queue: s.name, bytes: -1}
			if l.stats, l.err = inspect.NewAdmin(s.queue).StatsOfAll(ctx); l.err == nil {
				l.rooms, l.err = inspect.NewAdmin(s.queue).Rooms(ctx)
			}
			if errors.Is(l.err, delay.ErrNoLayout) {
				l.err = nil // Nobody has ever used the queue.
			}
			l.at, l.sum = time.Now(), l.stats.Sum()
			if before != nil && before[i].err == nil {
				l.bytes, l.rates = before[i].bytes, ratesBetween(&before[i], l)
			}
		})
	}
	looking.Wait()
	return looks
}

// ratesBetween compares the counters of two looks. Shards that were dropped meanwhile
// took theirs along.
func ratesBetween(before, after *look) *lookRates {
	seconds := after.at.Sub(before.at).Seconds()
	rate := func(counter string) float64 {
		return max(0, float64(after.sum.Counters[counter]-before.sum.Counters[counter])/seconds)
	}
	return &lookRates{Scheduled: rate("scheduled"), Published: rate("published"), Cancelled: rate("cancelled"), Dead: rate("dead_lettered")}
}

// measure estimates how many bytes wait.
func (l *look) measure(s *session) error {
	if l.stats.Layout == nil {
		l.bytes = 0
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, lookTimeout)
	defer cancel()
	sizes, err := inspect.NewAdmin(s.queue).SampleSizes(ctx, &l.stats)
	if err == nil {
		l.bytes = sizes.Mean * float64(l.sum.Waiting)
	}
	return err
}

// shard is the part of the look that is about one shard.
func (l *look) shard(i int, name string) *look {
	return &look{queue: name, sum: l.stats.Shards[i], bytes: -1}
}

var (
	narrowLook  = []string{"QUEUE", "WAITING", "DUE", "OLDEST", "IN FLIGHT", "PARKED", "DEAD", "BYTES", "FULL", "IN/s", "OUT/s", "PAUSED"}
	lookColumns = append(slices.Clip(narrowLook), "+CANCELLED/s", "+DEAD/s", "+SHARDS", "+NEXT DUE", "+BUDGET", "+REDIS")
)

// cells are one a column.
func (l *look) cells() []any {
	bytes, rates := "-", []any{"-", "-", "-", "-"}
	if l.bytes >= 0 {
		bytes = size(l.bytes)
	}
	if r := l.rates; r != nil {
		for i, rate := range []float64{r.Scheduled, r.Published, r.Cancelled, r.Dead} {
			rates[i] = fmt.Sprintf("%.0f", rate)
		}
	}
	shards := "-"
	if l.stats.Layout != nil {
		shards = fmt.Sprintf("%d of %d held", l.stats.Held(), len(l.stats.Shards))
	}
	return []any{
		l.queue, l.sum.Waiting, l.sum.Due, strings.TrimSuffix(late(&l.sum), " ago"), l.sum.InFlight, l.sum.Parked, l.sum.Dead, bytes, fullest(l.rooms), rates[0], rates[1],
		l.paused(), rates[2], rates[3], shards, dash(l.sum.NextDue), room(l.rooms.Budget), room(l.rooms.Redis),
	}
}

// paused says what is paused.
func (l *look) paused() string {
	if _, whole := l.stats.Paused[""]; whole {
		return "all"
	}
	if len(l.stats.Paused) == 0 {
		return "-"
	}
	return strings.Join(slices.Sorted(maps.Keys(l.stats.Paused)), " ")
}

// statsJSON is a queue as programs see it.
type statsJSON struct {
	Queue    string `json:"queue"`
	At       string `json:"at"`
	Shards   int    `json:"shards"`
	Held     int    `json:"held"`
	Waiting  int64  `json:"waiting"`
	Due      int64  `json:"due"`
	Parked   int64  `json:"parked"`
	InFlight int64  `json:"in_flight"`
	Dead     int64  `json:"dead"`
	// OldestDueAge is in seconds, 0 where nothing is due; NextDue is null where nothing waits.
	OldestDueAge float64 `json:"oldest_due_age"`
	NextDue      *string `json:"next_due_at"`
	// Bytes is an estimate, null where it was not made.
	Bytes *int64 `json:"bytes"`
	// Rates are messages a second, null where they are not known.
	Rates *lookRates `json:"rates"`
	// Paused is since when topics are paused; the empty one is the whole queue.
	Paused map[string]string `json:"paused,omitempty"`
}

// view is the look with the rooms as the API has them.
func (l *look) view() any {
	view := statsJSON{
		Queue: l.queue, At: formatTime(l.at), Shards: len(l.stats.Shards), Held: l.stats.Held(),
		Waiting: l.sum.Waiting, Due: l.sum.Due, Parked: l.sum.Parked, InFlight: l.sum.InFlight, Dead: l.sum.Dead,
		OldestDueAge: l.sum.OldestDueAge.Round(time.Millisecond).Seconds(), NextDue: stamp(l.sum.NextDue), Rates: l.rates,
		Paused: map[string]string{},
	}
	if l.bytes >= 0 {
		bytes := int64(l.bytes)
		view.Bytes = &bytes
	}
	for topic, pause := range l.stats.Paused {
		view.Paused[topic] = formatTime(pause.Since)
	}
	return struct {
		statsJSON

		Budget *api.RoomView `json:"budget,omitempty"`
		Redis  *api.RoomView `json:"redis_memory,omitempty"`
	}{view, api.NewRoomView(l.rooms.Budget), api.NewRoomView(l.rooms.Redis)}
}
