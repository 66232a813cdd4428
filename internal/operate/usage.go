package operate

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/store/inspect"
)

// Usage is what queues take and have done, each and by owner.
type Usage struct {
	At     string       `json:"at" format:"date-time" doc:"When the figures were read, by the clock of the instance that was asked."`
	Age    float64      `json:"age_s" doc:"How many seconds ago that was."`
	Owners []OwnerUsage `json:"owners" nullable:"false" doc:"By name; the queues without an owner are last, in one without a name."`
	Total  UsageFigures `json:"total" doc:"The sum of all that are listed."`
}

// OwnerUsage is what the queues of an owner take and have done together.
type OwnerUsage struct {
	Owner string `json:"owner,omitempty" doc:"Absent: the queues that have none."`
	UsageFigures

	ByteShare      *float64     `json:"bytes_share,omitempty" doc:"What part of the bytes of all that are listed these are, 0 to 1. Absent if they have none, or it is not known."`
	PublishedShare *float64     `json:"published_share,omitempty" doc:"The same of what was published."`
	Queues         []QueueUsage `json:"queues" nullable:"false"`
}

// QueueUsage is what a queue takes and has done.
type QueueUsage struct {
	Name string `json:"name"`
	UsageFigures

	Since string `json:"counted_since,omitempty" format:"date-time" doc:"Since when scheduled and published are counted, by Redis' clock: when the queue was made, or made again after a loss."`
	Error string `json:"error,omitempty" doc:"Why the figures are not known."`
}

// UsageFigures are of a queue, or a sum, which is not known if a part of it is not.
type UsageFigures struct {
	Waiting   *int64 `json:"waiting,omitempty" doc:"Messages that wait, parked ones and due ones among them. Absent, like each figure, if it is not known."`
	InFlight  *int64 `json:"in_flight,omitempty"`
	Dead      *int64 `json:"dead,omitempty"`
	Bytes     *int64 `json:"bytes,omitempty" doc:"About how many bytes of Redis these messages take, as budgets count them: 270 and the average stored size of those that wait, from a sample."`
	Scheduled *int64 `json:"scheduled,omitempty" doc:"Messages accepted since counted_since."`
	Published *int64 `json:"published,omitempty" doc:"Messages published since then, copies included."`
}

// figures are all of them, in one order.
func (f *UsageFigures) figures() []**int64 {
	return []**int64{&f.Waiting, &f.InFlight, &f.Dead, &f.Bytes, &f.Scheduled, &f.Published}
}

// sumOf adds up figures.
func sumOf(parts []*UsageFigures) (sum UsageFigures) {
	for i, figure := range sum.figures() {
		*figure = new(int64)
		for _, part := range parts {
			n := *part.figures()[i]
			if n == nil {
				*figure = nil
				break
			}
			**figure += *n
		}
	}
	return sum
}

// ViewUsage is what these looks have found.
func ViewUsage(looks []*Look) Usage {
	at := time.Now()
	byOwner := map[string]*OwnerUsage{}
	for _, l := range looks {
		if l.At.Before(at) {
			at = l.At
		}
		owner := byOwner[l.Queue.Owner]
		if owner == nil {
			owner = &OwnerUsage{Owner: l.Queue.Owner}
			byOwner[l.Queue.Owner] = owner
		}
		owner.Queues = append(owner.Queues, l.usage())
	}
	u := Usage{At: Stamp(at), Age: time.Since(at).Seconds(), Owners: []OwnerUsage{}}
	var sums []*UsageFigures
	for _, owner := range byOwner {
		var queues []*UsageFigures
		for i := range owner.Queues {
			queues = append(queues, &owner.Queues[i].UsageFigures)
		}
		owner.UsageFigures = sumOf(queues)
		sums = append(sums, &owner.UsageFigures)
	}
	u.Total = sumOf(sums)
	for _, name := range slices.SortedFunc(maps.Keys(byOwner), namelessLast) {
		owner := byOwner[name]
		owner.ByteShare, owner.PublishedShare = share(owner.Bytes, u.Total.Bytes), share(owner.Published, u.Total.Published)
		u.Owners = append(u.Owners, *owner)
	}
	return u
}

func namelessLast(a, b string) int {
	if (a == "") != (b == "") {
		return cmp.Compare(b, a)
	}
	return cmp.Compare(a, b)
}

// share is what part of all it is; nil if that is not known, or there are none.
func share(part, all *int64) *float64 {
	if part == nil || all == nil || *all == 0 {
		return nil
	}
	return new(float64(*part) / float64(*all))
}

// usage is the part of one queue. One that no bridge has made yet has nothing.
func (l *Look) usage() QueueUsage {
	u := QueueUsage{Name: l.Queue.Name}
	switch {
	case errors.Is(l.Err, delay.ErrNoLayout):
		u.UsageFigures = sumOf(nil)
		return u
	case l.Err != nil:
		u.Error = Classify(l.Err).Detail
		return u
	}
	sum := &l.Sum
	u.Waiting, u.InFlight, u.Dead, u.Since = &sum.Waiting, &sum.InFlight, &sum.Dead, Stamp(l.MadeAt())
	if l.mean >= 0 {
		u.Bytes = new(inspect.UsedBy(sum.Waiting+sum.InFlight+sum.Dead, l.mean))
	}
	if counted := l.Counted(); counted != nil {
		u.Scheduled, u.Published = new(counted["scheduled"]), new(counted["published"])
	}
	return u
}
