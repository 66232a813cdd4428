package trial

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// Ledger holds what producers were promised and what consumers got, and says
// whether the two agree. It is safe for concurrent use.
type Ledger struct {
	mu       sync.Mutex
	promises map[string]*promise
	got      int
	unknown  map[string][]Record // by ids that nobody was promised, so far
	last     []time.Time         // by shard, see CountShards
	problems []string
	arrived  chan struct{}
}

type promise struct {
	key     string
	body    []byte
	headers map[string]string
	// dues are the due times that may be the last one, by truthful answers; none
	// where the answer was lost.
	dues []time.Time
	// earliest is the first due time that it may have had before, see Since.
	earliest time.Time
	// answered is when the last call about it was: from then on its due time counts.
	answered time.Time
	// absent is when an answer first said that it is no longer there.
	absent time.Time
	// cancelled says that it must not arrive, maybe that it may or may not.
	cancelled, maybe bool
	// cancelTried is when the first cancel of it was committed.
	cancelTried time.Time
	// lostDues are those of reschedules that a database has forgotten: the message may
	// go out at them, whatever is done about it afterwards.
	lostDues []time.Time
	// operations are those that were committed.
	operations []committedOperation
	// refused says that it was never accepted.
	refused bool
	// forgotten says that a database has forgotten something about it, which may
	// have had its effect: two copies may go out, neither marked.
	forgotten bool
	records   []arrival
}

type arrival struct {
	order   int
	at, due time.Time
	attempt string
	seen    bool // at is the consumer's
}

// slowConsumer is how long a message may be on its way from a broker that does not tell when
// it stored it.
const slowConsumer = 5 * time.Second

// NewLedger returns an empty ledger.
func NewLedger() *Ledger {
	return &Ledger{
		promises: map[string]*promise{}, unknown: map[string][]Record{}, arrived: make(chan struct{}, 1),
	}
}

// Scheduled records an accepted message.
func (l *Ledger) Scheduled(m delay.Message, result delay.Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &promise{}
	if !result.DueAt.IsZero() { // A row's is the database's affair.
		p.dues = []time.Time{result.DueAt}
	}
	l.promise(m, result.Ref.ID, p)
}

// Unsure records a message whose answer does not say whether it was
// accepted.
func (l *Ledger) Unsure(m delay.Message, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promise(m, id, &promise{maybe: true})
}

// Refused records a message whose answer says that it was not accepted.
func (l *Ledger) Refused(m delay.Message, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promise(m, id, &promise{refused: true})
}

// Since records that the answer came late to a call that asked for a delay: a
// first run, whose reply was lost, may have accepted the message with any due
// time from the earliest to the one answered, and the last run once more, as a
// copy.
func (l *Ledger) Since(id string, earliest time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promises[id].earliest = earliest
}

// promise takes what arrived already: a producer may see its answer late.
func (l *Ledger) promise(m delay.Message, id string, p *promise) {
	p.key, p.body, p.headers, p.answered = m.Key, m.Body, m.Headers, time.Now()
	l.promises[id] = p
	for _, r := range l.unknown[id] {
		l.take(p, r)
	}
	delete(l.unknown, id)
}

// Absent records an answer that the message does not exist: if it arrives, it
// must have arrived before.
func (l *Ledger) Absent(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.promises[id]; p.absent.IsZero() {
		p.absent = time.Now()
	}
}

// Cancelled records that a cancel was answered with done.
func (l *Ledger) Cancelled(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promises[id].cancelled = true
}

// Maybe records an answer that leaves open what happened.
func (l *Ledger) Maybe(id string, dues ...time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promises[id].maybe = true
	l.promises[id].dues = append(l.promises[id].dues, dues...)
	l.promises[id].answered = time.Now()
}

// Rescheduled records that a reschedule was answered with done.
func (l *Ledger) Rescheduled(id string, due time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promises[id].dues, l.promises[id].earliest = []time.Time{due}, time.Time{}
	l.promises[id].answered = time.Now()
}

// Got records what a consumer received.
func (l *Ledger) Got(r Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.promises[r.ID]; p != nil {
		l.take(p, r)
		return
	}
	l.unknown[r.ID] = append(l.unknown[r.ID], r)
}

// take holds l.mu.
func (l *Ledger) take(p *promise, r Record) {
	due, err := time.Parse(message.TimeFormat, r.Headers[message.HeaderDueAt])
	if err != nil {
		l.problems = append(l.problems, fmt.Sprintf("%s: header %s: %v", r.ID, message.HeaderDueAt, err))
	}
	if !bytes.Equal(p.body, r.Body) {
		l.problems = append(l.problems, r.ID+": body differs")
	}
	for name, value := range p.headers {
		if r.Headers[name] != value {
			l.problems = append(l.problems, r.ID+": header "+name+" differs")
		}
	}
	l.got++
	l.noteShard(p, r)
	p.records = append(p.records, arrival{order: l.got, at: r.At, due: due, attempt: r.Headers[message.HeaderAttempt], seen: r.Seen})
	select {
	case l.arrived <- struct{}{}:
	default:
	}
}

// Missing is how many messages must arrive and have not.
func (l *Ledger) Missing() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	missing := 0
	for _, p := range l.promises {
		if p.missing() {
			missing++
		}
	}
	return missing
}

// Overdue is how many messages must have arrived if all that was due at an instant has.
func (l *Ledger) Overdue(at time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	overdue := 0
	for _, p := range l.promises {
		if n := len(p.dues); n > 0 && p.missing() && p.dues[n-1].Before(at) {
			overdue++
		}
	}
	return overdue
}

// Arrived is how many records have arrived, also those of ids that nobody was
// promised.
func (l *Ledger) Arrived() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.got
	for _, records := range l.unknown {
		n += len(records)
	}
	return n
}

// missing reports whether the message must arrive and has not.
func (p *promise) missing() bool {
	return len(p.records) == 0 && !p.cancelled && !p.maybe && !p.refused
}

// Await waits until nothing is missing and nothing has arrived for quiet, at
// most for limit.
func (l *Ledger) Await(limit, quiet time.Duration) {
	end := time.After(limit)
	for {
		select {
		case <-l.arrived:
		case <-time.After(quiet):
			if l.Missing() == 0 {
				return
			}
		case <-end:
			return
		}
	}
}

// Report is what the ledger found.
type Report struct {
	Scheduled, Arrived, Lost, Duplicates, Early     int
	CancelledArrived, WrongDue, OutOfOrder, Unknown int
	// Untruthful are messages that arrived although an answer had said that they
	// were not accepted, or, before, that they were no longer there.
	Untruthful int
	// DuplicatesUnmarked are copies whose attempt does not say that they are later ones.
	DuplicatesUnmarked int
	P50, P99, Max      time.Duration
	Problems           []string
}

// Wrong is the number of broken promises; duplicates are not among them.
func (r Report) Wrong() int {
	return r.Lost + r.Early + r.CancelledArrived + r.WrongDue + r.OutOfOrder + r.Unknown + len(r.Problems)
}

func (r Report) String() string {
	text := fmt.Sprintf("scheduled %d  arrived %d  lost %d  twice %d  early %d  cancelled but arrived %d  wrong due %d  out of order %d  lateness p50 %s p99 %s max %s",
		r.Scheduled, r.Arrived, r.Lost, r.Duplicates, r.Early, r.CancelledArrived, r.WrongDue, r.OutOfOrder,
		r.P50.Round(10*time.Microsecond), r.P99.Round(10*time.Microsecond), r.Max.Round(10*time.Microsecond))
	if len(r.Problems) > 0 {
		text += "\n  " + strings.Join(r.Problems[:min(5, len(r.Problems))], "\n  ")
	}
	return text
}

// Report compares promises and arrivals.
func (l *Ledger) Report() Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := Report{Scheduled: len(l.promises), Arrived: l.got, Unknown: len(l.unknown), Problems: slices.Clone(l.problems)}
	var lateness []time.Duration
	for _, id := range slices.Sorted(maps.Keys(l.promises)) {
		p := l.promises[id]
		switch {
		case p.missing():
			r.Lost++
			r.Problems = append(r.Problems, id+": lost")
		case len(p.records) > 0 && p.cancelled && !p.maybe:
			r.CancelledArrived++
			r.Problems = append(r.Problems, id+": cancelled, arrived all the same")
		case len(p.records) > 1:
			r.Duplicates += len(p.records) - 1
		}
		if len(p.records) > 0 && p.untruthful() {
			r.Untruthful++
			r.Problems = append(r.Problems, id+": said not to be there, arrived all the same")
		}
		for i, a := range p.records {
			if a.at.Before(a.due) {
				r.Early++
			}
			if !p.promised(a.due) {
				r.WrongDue++
				r.Problems = append(r.Problems, fmt.Sprintf("%s: due %s, promised %s", id, a.due, p.dues))
			}
			if i > 0 && a.attempt == p.records[0].attempt {
				r.DuplicatesUnmarked++
			}
			if i == 0 {
				lateness = append(lateness, a.at.Sub(a.due))
			}
		}
	}
	r.OutOfOrder = len(l.disordered())
	slices.Sort(lateness)
	if n := len(lateness); n > 0 {
		r.P50, r.P99, r.Max = lateness[n/2], lateness[n*99/100], lateness[n-1]
	}
	return r
}

// promised reports whether an answer allows that due time.
func (p *promise) promised(due time.Time) bool {
	return len(p.dues) == 0 || slices.ContainsFunc(p.dues, due.Equal) ||
		!p.earliest.IsZero() && !due.Before(p.earliest) && due.Before(p.dues[0])
}

// untruthful reports whether it was refused, or the first copy came after an answer
// that said the message was not there.
func (p *promise) untruthful() bool {
	stored := p.records[0].at
	if p.records[0].seen {
		stored = stored.Add(-slowConsumer)
	}
	return p.refused || !p.absent.IsZero() && !p.maybe && stored.After(p.absent)
}

// disordered returns the first copies that arrived after a later one of their Key,
// and were accepted before that one was due: later on, it may have been claimed.
func (l *Ledger) disordered() []arrival {
	byKey := map[string][]*promise{}
	for _, p := range l.promises {
		if p.key != "" && len(p.records) > 0 {
			byKey[p.key] = append(byKey[p.key], p)
		}
	}
	var wrong []arrival
	for _, list := range byKey {
		slices.SortFunc(list, func(a, b *promise) int { return a.records[0].order - b.records[0].order })
		for i := 1; i < len(list); i++ {
			before := list[i-1].records[0]
			if this := list[i].records[0]; this.due.Before(before.due) && list[i].answered.Before(before.due) {
				wrong = append(wrong, this)
			}
		}
	}
	return wrong
}
