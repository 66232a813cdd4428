package flow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
)

const (
	// memory is how long before an incident something may have been published that
	// it made unknown: what a row is not told stays in Redis until it can be.
	memory = time.Minute
	// aftermath is how long after an incident its effects may show: who dies or hangs
	// leaves claims behind, which last a minute.
	aftermath = 90 * time.Second
	// operating is how long a committed operation may take to reach Redis, while
	// other things go wrong.
	operating = 15 * time.Second
)

// Verdict is what the ledger says of a run in which things went wrong. A message
// counts once under the first name that fits.
type Verdict struct {
	// Published are messages that arrived, Copies further copies of them.
	Published, Copies int
	// Unmarked are copies of which no header tells that another may be out,
	// Unexplained those that no incident explains.
	Unmarked, Unexplained int
	// Lost were promised and did not arrive, Early came before their time, Resurrected
	// though a cancel said done, WrongDue for a due time that nobody had promised.
	Lost, Early, Resurrected, WrongDue int
	// UnmarkedAllowed, ResurrectedAllowed and WrongDueAllowed are those where a Redis
	// that was put back to an earlier state had forgotten a claim, a cancel or a
	// reschedule, or a database a reschedule.
	UnmarkedAllowed, ResurrectedAllowed, WrongDueAllowed int
	// CaughtUp is how long after the last incident all was published that was due by
	// then.
	CaughtUp time.Duration
	Problems []string
}

// Judge compares promises, arrivals and incidents.
func (l *Ledger) Judge(incidents []Incident) Verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := Verdict{Problems: slices.Clone(l.problems)}
	var end time.Time
	for _, i := range incidents {
		if i.To.After(end) {
			end = i.To
		}
	}
	for _, id := range slices.Sorted(maps.Keys(l.promises)) {
		p := l.promises[id]
		if p.missing() {
			v.Lost++
		}
		if len(p.records) == 0 {
			continue
		}
		v.Published++
		if first := p.records[0]; !first.due.After(end) {
			v.CaughtUp = max(v.CaughtUp, first.at.Sub(end))
		}
		for _, a := range p.records {
			if a.at.Before(a.due) {
				v.Early++
			}
		}
		v.resurrected(id, p, incidents)
		v.moved(id, p, incidents)
		v.copies(id, p, incidents)
	}
	return v
}

// resurrected counts a message that arrived though a cancel said done. Where Redis
// was put back, it may have forgotten the cancel, or that it was published before.
func (v *Verdict) resurrected(id string, p *promise, incidents []Incident) {
	if !p.cancelled || p.maybe {
		return
	}
	for _, i := range incidents {
		forgot := slices.ContainsFunc(p.records, func(a arrival) bool { return i.From.Before(a.at) && a.at.Before(i.To) }) ||
			p.cancelTried.Before(i.To) && p.cancelTried.After(i.From.Add(-operating))
		if i.Loss == RevertsRedis && forgot {
			v.ResurrectedAllowed++
			return
		}
	}
	v.Resurrected++
	v.problem(id, p, "resurrected")
}

// moved counts a message that arrived for a due time that was not promised.
func (v *Verdict) moved(id string, p *promise, incidents []Incident) {
	switch {
	case !slices.ContainsFunc(p.records, func(a arrival) bool { return !p.promised(a.due) }):
	case p.near(RevertsRedis, incidents):
		v.WrongDueAllowed++
	default:
		v.WrongDue++
		v.problem(id, p, "moved")
	}
}

// near reports whether an incident of that kind, or any where it is LosesNothing,
// may have made unknown what became of the message.
func (p *promise) near(loss Loss, incidents []Incident) bool {
	first, last := p.records[0].at, p.records[len(p.records)-1].at
	return slices.ContainsFunc(incidents, func(i Incident) bool {
		return (loss == LosesNothing || i.Loss == loss) && i.From.Before(last) && i.From.Add(-memory).Before(first) && i.To.Add(aftermath).After(first)
	})
}

// copies counts the copies of a message. Which of them came first says nothing: one
// that was under way is overtaken by the one in its place.
func (v *Verdict) copies(id string, p *promise, incidents []Incident) {
	if len(p.records) < 2 {
		return
	}
	v.Copies += len(p.records) - 1
	if !p.near(LosesNothing, incidents) {
		v.Unexplained += len(p.records) - 1
		v.problem(id, p, "published twice without a reason")
	}
	unmarked := -1 // One of them need not be.
	for _, a := range p.records {
		if a.attempt == "1" {
			unmarked++
		}
	}
	switch {
	case unmarked <= 0:
	case p.forgotten || p.near(RevertsRedis, incidents):
		v.UnmarkedAllowed += unmarked
	default:
		v.Unmarked += unmarked
		v.problem(id, p, "published twice without a mark")
	}
}

func (v *Verdict) problem(id string, p *promise, what string) {
	const clock = "15:04:05.000"
	text := []string{id + ": " + what}
	for _, due := range p.dues {
		text = append(text, "due "+due.UTC().Format(clock))
	}
	for _, o := range p.operations {
		text = append(text, fmt.Sprintf("at %s cancel %t, due %s", o.at.UTC().Format(clock), o.cancel, o.due.UTC().Format(clock)))
	}
	for _, a := range p.records {
		text = append(text, fmt.Sprintf("arrived %s, due %s, %s %s", a.at.UTC().Format(clock), a.due.UTC().Format(clock), message.HeaderAttempt, a.attempt))
	}
	v.Problems = append(v.Problems, strings.Join(text, "; "))
}
