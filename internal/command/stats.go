package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/operate"
)

type statsCommand struct {
	queuesFlags
	Shards bool `help:"Show each shard, too."`
	Over   span `default:"1s" help:"The interval for the rates: counters are read before and after it. 0s: no rates."`
}

func (statsCommand) Help() string {
	return `WAITING counts all waiting messages, parked and due ones, too; DUE those that are due and not parked, and OLDEST is
how long the first of them has been due. BYTES estimates the size of the waiting messages (id, key, topic,
headers and body) from some random ones, without dead letters and without Redis' overhead, which FULL includes.
IN/s and OUT/s are messages scheduled and published per second. FULL is the used part of the queue's budget or of
Redis' maxmemory, whichever has less room; -o wide shows both, and when they will be full if they keep growing as
in the last ten minutes. A bridge updates that every ten seconds; it is - if there is no limit, or no bridge runs.

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
		before = lookAt(p.ctx, all, nil)
		if !wait.Sleep(p.ctx, over) {
			return p.ctx.Err()
		}
	}
	looks := lookAt(p.ctx, all, before)
	list := c.listing(p.stdout, lookColumns...)
	for i := range looks {
		l := &looks[i]
		if l.hasFailed() {
			return errors.Join(list.end(nil, ""), all[i].fail("look at", "", l.err))
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
		if shards, held := len(l.Shards), l.HeldShards(); held < shards {
			if _, err := fmt.Fprintf(w, "\nqueue %s: nothing is published from %d of its %s: no bridge polls them\n",
				l.Queue.Name, shards-held, count(shards, "shard")); err != nil {
				return err
			}
		}
		if err := describeRoutes(w, l.Sum.Routes); err != nil {
			return err
		}
	}
	return describeRooms(w, looks)
}

func (c statsCommand) print(list *listing, l *look) error {
	if err := list.row(l.view, l.cells()...); err != nil || !c.Shards {
		return err
	}
	views := operate.ViewShards(l.Queue.Name, &l.QueueStats, nil)
	for i := range views {
		part := look{Look: &operate.Look{Queue: &operate.Queue{Name: fmt.Sprintf("  %s:%d", l.Queue.Name, i)}, Sum: l.Shards[i], Bytes: -1}}
		if views[i].Holder != "" {
			part.Queue.Name += " " + views[i].Holder
		}
		if err := list.row(func() any { return views[i] }, part.cells()...); err != nil {
			return err
		}
	}
	return nil
}

// lookTimeout bounds what a look waits for Redis.
const lookTimeout = 5 * time.Second

// look is what a queue held at one time, and what was counted since an earlier look.
type look struct {
	*operate.Look

	rules operate.RulesView
	rooms inspect.Rooms
	rates *operate.Rates
	err   error // why not all is known
}

// hasFailed reports whether the look found nothing out. Of a queue that was never used, it
// found that out.
func (l *look) hasFailed() bool { return l.err != nil && !errors.Is(l.err, delay.ErrNoLayout) }

// lookAt looks at all queues at once; before is what an earlier look returned, or nil.
func lookAt(ctx context.Context, all []*session, before []look) []look {
	queues := make([]*operate.Queue, len(all))
	for i, s := range all {
		queues[i] = s.Queue
	}
	var earlier []*operate.Look
	for i := range before {
		earlier = append(earlier, before[i].Look)
	}
	looks := make([]look, len(all))
	for i, l := range operate.LookAt(ctx, queues, earlier, lookTimeout) {
		looks[i] = look{Look: l, rules: operate.ViewRules(&all[i].config), err: l.Err}
		if before != nil {
			looks[i].rates = l.RatesSince(before[i].Look)
		}
		if l.Err == nil {
			looks[i].rooms, looks[i].err = all[i].rooms(ctx)
		}
	}
	return looks
}

// rooms are what a bridge has told.
func (s *session) rooms(ctx context.Context) (inspect.Rooms, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return s.Admin().Rooms(ctx)
}

var (
	narrowLook  = []string{"QUEUE", "WAITING", "DUE", "OLDEST", "IN FLIGHT", "PARKED", "DEAD", "BYTES", "FULL", "IN/s", "OUT/s", "PAUSED"}
	lookColumns = append(slices.Clip(narrowLook), "+CANCELLED/s", "+DEAD/s", "+OWNER", "+SHARDS", "+NEXT DUE", "+BUDGET", "+REDIS")
)

// cells are one a column.
func (l *look) cells() []any {
	bytes, rates := "-", []any{"-", "-", "-", "-"}
	if l.Bytes >= 0 {
		bytes = size(l.Bytes)
	}
	if r := l.rates; r != nil {
		for i, rate := range []float64{r.Scheduled, r.Published, r.Cancelled, r.Dead} {
			rates[i] = fmt.Sprintf("%.0f", rate)
		}
	}
	shards := "-"
	if l.Layout != nil {
		shards = fmt.Sprintf("%d of %d held", l.HeldShards(), len(l.Shards))
	}
	return []any{
		l.Queue.Name, l.Sum.Waiting, l.Sum.Due, strings.TrimSuffix(late(&l.Sum), " ago"), l.Sum.InFlight, l.Sum.Parked, l.Sum.Dead, bytes, fullest(l.rooms), rates[0], rates[1],
		l.paused(), rates[2], rates[3], cmp.Or(l.Queue.Owner, "-"), shards, dash(l.Sum.NextDue), room(l.rooms.Budget), room(l.rooms.Redis),
	}
}

// paused says what is paused.
func (l *look) paused() string {
	if _, whole := l.Paused[""]; whole {
		return "all"
	}
	return cmp.Or(strings.Join(slices.Sorted(maps.Keys(l.Paused)), " "), "-")
}

// view is the look as programs see it.
func (l *look) view() any { return l.Detail(l.View(l.rates, nil), l.rules, l.rooms) }
