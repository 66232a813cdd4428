package operate

import (
	"context"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// QueueView is a queue as it is now. Where Redis does not tell, there are no figures: none is
// 0 that is not known.
type QueueView struct {
	Name string `json:"name"`
	Sink string `json:"sink"`
	// Owner and Contacts are as configured.
	Owner    string   `json:"owner,omitempty" doc:"Who it belongs to; absent if nobody has said so."`
	Contacts []string `json:"contacts,omitempty" doc:"Where the owner is reached."`
	Source   string   `json:"source" enum:"main,file,api" doc:"Where it is declared: in the main configuration file, in a queue file, or by the API."`
	File     string   `json:"file,omitempty" doc:"The queue file."`
	Since    string   `json:"in_force_since,omitempty" format:"date-time" doc:"Since when the instance that was asked has it with these settings, by its clock."`
	Shards   *int     `json:"shards,omitempty" doc:"Absent, like all figures, if it is not known: see error."`
	// Held is less than Shards where no instance polls some of them.
	Held      *int         `json:"held,omitempty" doc:"How many of the shards an instance polls."`
	Waiting   *int64       `json:"waiting,omitempty" doc:"Messages that wait, parked ones and due ones among them."`
	Due       *int64       `json:"due,omitempty" doc:"Messages that wait, are due and not parked."`
	Parked    *int64       `json:"parked,omitempty" doc:"Messages whose route is unavailable."`
	InFlight  *int64       `json:"in_flight,omitempty"`
	Dead      *int64       `json:"dead,omitempty"`
	Bytes     *int64       `json:"bytes,omitempty" doc:"Approximate size of the waiting messages (id, key, topic, headers and body), in bytes, from a sample taken from time to time."`
	OldestDue *float64     `json:"oldest_due_age_s,omitempty" doc:"For how many seconds the oldest message has been due; 0 if none is."`
	NextDue   string       `json:"next_due_at,omitempty" format:"date-time" doc:"When the first message that is not parked is due."`
	Rates     *Rates       `json:"rates,omitempty" doc:"Absent without an earlier reading to compare with."`
	Lateness  *Lateness    `json:"lateness,omitempty" doc:"Absent if this instance has published nothing."`
	Paused    []PauseState `json:"paused" nullable:"true" doc:"Its pauses, of the whole queue or of topics; null if they are not known."`
	Losses    []Loss       `json:"losses" nullable:"true" doc:"What Redis has lost of it and no operator has acknowledged; null if that is not known."`
	MadeAt    string       `json:"made_at,omitempty" format:"date-time" doc:"When it was made, by Redis' clock. If it had messages before, Redis has lost them."`
	Error     string       `json:"error,omitempty" doc:"Why the numbers are not known."`
}

// QueueDetail is a queue with what only who looks at it alone wants to know.
type QueueDetail struct {
	QueueView

	At     string    `json:"at" format:"date-time" doc:"When the figures were read, by the clock of the instance that was asked."`
	Age    float64   `json:"age_s" doc:"How many seconds ago the figures were read."`
	Rules  RulesView `json:"rules"`
	Budget *RoomView `json:"budget,omitempty" doc:"Approximate memory use of the queue in Redis, and its budget, in bytes. Absent without a budget."`
	Redis  *RoomView `json:"redis_memory,omitempty" doc:"How much of its maxmemory Redis uses; in a Cluster, on the primary that will be full first. Absent without a maxmemory."`
}

// Rates are how many messages a second, of the whole queue.
type Rates struct {
	Over      float64 `json:"over_s" doc:"Over how many seconds."`
	Scheduled float64 `json:"scheduled"`
	Published float64 `json:"published"`
	Cancelled float64 `json:"cancelled"`
	Dead      float64 `json:"dead"`
}

// Rated are the counters that rates are made of.
var Rated = []string{"scheduled", "published", "cancelled", "dead_lettered"}

// RatesBetween compares counters with those of so many seconds before; nil if a counter
// has become less: Redis has lost it, or a shard that was dropped took its part along.
func RatesBetween(before, after map[string]int64, over time.Duration) *Rates {
	by := map[string]float64{}
	for _, counter := range Rated {
		more := after[counter] - before[counter]
		if more < 0 {
			return nil
		}
		by[counter] = float64(more) / over.Seconds()
	}
	return &Rates{Over: over.Seconds(), Scheduled: by["scheduled"], Published: by["published"], Cancelled: by["cancelled"], Dead: by["dead_lettered"]}
}

// Lateness is from the due time to the broker's acknowledgement, of what the instance
// that was asked has published.
type Lateness struct {
	Over     float64 `json:"over_s" doc:"Over how many seconds; 0 means since the start of the instance."`
	Messages uint64  `json:"messages"`
	P50      float64 `json:"p50_s"`
	P99      float64 `json:"p99_s"`
}

// ViewLateness is what was observed in that time; nil if nothing was.
func ViewLateness(h Histogram, over time.Duration) *Lateness {
	if h.Count() == 0 {
		return nil
	}
	p50, p99 := h.Percentiles()
	return &Lateness{Over: over.Seconds(), Messages: h.Count(), P50: p50, P99: p99}
}

// Loss is what Redis has lost of a queue.
type Loss struct {
	ID       string `json:"id"`
	Kind     string `json:"kind" enum:"queue,shards,layout" doc:"The whole queue, shards with their messages, or only the layout, which was restored from the shards."`
	Shards   []int  `json:"shards,omitempty" doc:"The shards that were lost."`
	At       string `json:"at,omitempty" format:"date-time" doc:"When it was noticed."`
	Instance string `json:"instance,omitempty" doc:"Who noticed it."`
}

func viewLosses(list []store.Loss) []Loss {
	views := make([]Loss, len(list))
	for i, l := range list {
		views[i] = Loss{ID: l.ID, Kind: string(l.Kind), Shards: l.Shards, At: Stamp(l.At), Instance: l.Instance}
	}
	return views
}

// Look is what a queue held at one time. Who has it does not change it.
type Look struct {
	inspect.QueueStats

	Queue *Queue
	At    time.Time
	Sum   inspect.ShardStats
	// Bytes is about what the waiting messages have; negative if that is not known.
	Bytes float64
	// Err is why the figures are not known.
	Err error

	// mean is what a waiting message has; negative if that is not known. carried is for how many looks it was not measured.
	mean    float64
	carried int
}

// measuredEvery is how many looks have the same mean, which costs more than all else.
const measuredEvery = 10

// LookAt looks at all queues at once, each for its own timeout: one whose Redis does not
// answer takes no time from the others. before are the looks before it, of the same queues;
// nil if there are none, as those of queues that were not there yet.
func LookAt(ctx context.Context, queues []*Queue, before []*Look, timeout time.Duration) []*Look {
	looks := make([]*Look, len(queues))
	var looking sync.WaitGroup
	for i, q := range queues {
		looks[i] = &Look{Queue: q, Bytes: -1, mean: -1}
		if before != nil && before[i] != nil && before[i].mean > 0 && before[i].carried+1 < measuredEvery { // Where nothing waited it is 0, and costs nothing.
			looks[i].mean, looks[i].carried = before[i].mean, before[i].carried+1
		}
		looking.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			looks[i].look(ctx)
		})
	}
	looking.Wait()
	return looks
}

func (l *Look) look(ctx context.Context) {
	admin := l.Queue.Admin()
	l.QueueStats, l.Err = admin.StatsOfAll(ctx)
	l.At, l.Sum = time.Now(), l.QueueStats.Sum()
	if l.Err != nil {
		return
	}
	if l.mean < 0 {
		sizes, err := admin.SampleSizes(ctx, &l.QueueStats)
		if err != nil {
			return
		}
		l.mean = sizes.Mean
	}
	l.Bytes = l.mean * float64(l.Sum.Waiting)
}

// RatesSince are the rates since an earlier look; nil if they are not known.
func (l *Look) RatesSince(before *Look) *Rates {
	if l.Err != nil || before.Err != nil {
		return nil
	}
	return RatesBetween(before.Sum.Counters, l.Sum.Counters, l.At.Sub(before.At))
}

// View is the queue as programs see it.
func (l *Look) View(rates *Rates, lateness *Lateness) QueueView {
	v := QueueView{Name: l.Queue.Name, Sink: l.Queue.Sink, Owner: l.Queue.Owner, Contacts: l.Queue.Contacts, Since: Stamp(l.Queue.Since)}
	v.Source, v.File = l.Queue.source()
	if l.Err != nil {
		v.Error = Classify(l.Err).Detail
		return v
	}
	sum := &l.Sum
	v.Shards, v.Held, v.Waiting, v.Due = new(len(l.Shards)), new(l.HeldShards()), &sum.Waiting, &sum.Due
	v.Parked, v.InFlight, v.Dead = &sum.Parked, &sum.InFlight, &sum.Dead
	v.OldestDue, v.NextDue = new(seconds(sum.OldestDueAge)), Stamp(sum.NextDue)
	v.Paused, v.Losses, v.MadeAt = viewPaused(l.Paused), viewLosses(l.Losses), Stamp(l.MadeAt())
	v.Rates, v.Lateness = rates, lateness
	if l.Bytes >= 0 {
		v.Bytes = new(int64(l.Bytes))
	}
	return v
}

// Detail is the view of the queue alone, with its rules and rooms.
func (l *Look) Detail(view QueueView, rules RulesView, rooms inspect.Rooms) QueueDetail {
	return QueueDetail{
		QueueView: view, At: Stamp(l.At), Age: time.Since(l.At).Seconds(), Rules: rules,
		Budget: ViewRoom(rooms.Budget), Redis: ViewRoom(rooms.Redis),
	}
}
