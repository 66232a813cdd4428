package trial

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
)

// settling is how long a publish, or a committed operation, may be away from what it
// changes in Redis and in the database, while other things go wrong: bridges hang for
// half of it.
const settling = 15 * time.Second

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
// was put back, it may have forgotten the cancel, or that it was published before, or
// a reschedule, before whose new time the cancel was in time. A reschedule that the
// database has forgotten may have given the message a life of its own.
func (v *Verdict) resurrected(id string, p *promise, incidents []Incident) {
	if !p.cancelled || p.maybe {
		return
	}
	if !slices.ContainsFunc(p.records, func(a arrival) bool { return !slices.ContainsFunc(p.lostDues, a.due.Equal) }) {
		v.ResurrectedAllowed++
		return
	}
	for _, i := range incidents {
		forgot := slices.ContainsFunc(p.records, func(a arrival) bool { return i.From.Before(a.at) && a.at.Before(i.To) }) ||
			i.mayForget(p.cancelTried) || p.movedBack(i)
		if i.Loss == RevertsRedis && forgot {
			v.ResurrectedAllowed++
			return
		}
	}
	v.Resurrected++
	v.problem(id, p, "resurrected")
}

// moved counts a message that arrived for a due time that was not promised. Where
// Redis was put back, it may have forgotten a reschedule.
func (v *Verdict) moved(id string, p *promise, incidents []Incident) {
	switch {
	case !slices.ContainsFunc(p.records, func(a arrival) bool { return !p.promised(a.due) }):
	case slices.ContainsFunc(incidents, func(i Incident) bool { return i.Loss == RevertsRedis && p.movedBack(i) }):
		v.WrongDueAllowed++
	default:
		v.WrongDue++
		v.problem(id, p, "moved")
	}
}

// mayForget reports whether what was committed at that instant may have been among
// the writes that an incident took back.
func (i Incident) mayForget(committed time.Time) bool {
	return committed.After(i.From.Add(-settling)) && committed.Before(i.To)
}

// movedBack reports whether the message arrived for a due time from before a
// reschedule that the incident may have taken back.
func (p *promise) movedBack(i Incident) bool {
	return slices.ContainsFunc(p.operations, func(o committedOperation) bool { return !o.cancel && i.mayForget(o.at) }) &&
		slices.ContainsFunc(p.records, func(a arrival) bool { return !p.promised(a.due) && a.at.After(i.From) })
}

// during reports whether one of the copies was published so near to the incident that
// what Redis and the database knew of it may be lost.
func (p *promise) during(i Incident) bool {
	return slices.ContainsFunc(p.records, func(a arrival) bool {
		return a.at.After(i.From.Add(-settling)) && a.at.Before(i.To.Add(settling))
	})
}

// copies counts the copies of a message. Which of them came first says nothing: one
// that was under way is overtaken by the one in its place.
func (v *Verdict) copies(id string, p *promise, incidents []Incident) {
	if len(p.records) < 2 {
		return
	}
	v.Copies += len(p.records) - 1
	if !slices.ContainsFunc(incidents, p.during) {
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
	case p.forgotten || slices.ContainsFunc(incidents, func(i Incident) bool {
		return i.Loss == RevertsRedis && (p.during(i) || p.movedBack(i))
	}):
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
