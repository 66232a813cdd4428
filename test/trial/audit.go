package trial

import (
	"fmt"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/delay"
)

// fate is how a transaction ended.
type fate int

const (
	wasRolledBack fate = iota
	wasCommitted
	// wasTakenBack: the database may have committed it, and has forgotten it.
	wasTakenBack
)

// replicationLag is how much later than the primary a standby may have a commit
// that it does not miss.
const replicationLag = 5 * time.Second

// fate holds b.mu.
func (b *Book) fate(tx string, known map[string]bool, incidents []Incident) fate {
	if known[tx] {
		return wasCommitted
	}
	t := b.transactions[tx]
	if t == nil || t.tried.IsZero() {
		return wasRolledBack
	}
	for _, i := range incidents {
		from := i.From.Add(-replicationLag)
		if i.Loss == RevertsDatabase && t.tried.Before(i.To) && (t.committed.IsZero() || t.committed.After(from)) {
			return wasTakenBack
		}
	}
	return wasRolledBack
}

// audit checks one message.
type audit struct {
	*bookedMessage
	id       string
	rows     []outboxRow
	tally    *Tally
	fate     func(tx string) fate
	tried    func(tx string) time.Time
	problems []string

	p       promise
	certain bool // it is known which due time is the last one
	tooLate bool
}

func (a *audit) problem(format string, args ...any) {
	a.problems = append(a.problems, a.id+": "+fmt.Sprintf(format, args...)+fmt.Sprintf("; rows %+v", a.rows))
}

// promise returns what the rows promise.
func (a *audit) promise() *promise {
	if fate := a.fate(a.tx); fate != wasCommitted {
		// Operations on what is not there are written all the same, and say so.
		if slices.ContainsFunc(a.rows, func(r outboxRow) bool { return r.op == opHead }) {
			a.problem("not committed, but has a row")
		}
		if fate == wasTakenBack {
			a.tally.TakenBack++
			return &promise{maybe: true, forgotten: true}
		}
		a.tally.RolledBack++
		return &promise{refused: true}
	}
	a.tally.Committed++
	a.p.dues, a.certain = []time.Time{a.due}, true
	var head *outboxRow
	operated := 0
	for i, r := range a.rows {
		if r.op == opHead {
			head = &a.rows[i]
			continue
		}
		operated++
		a.apply(r)
	}
	want := 0
	for _, c := range a.operations {
		switch a.fate(c.tx) {
		case wasCommitted:
			want++
			a.p.operations = append(a.p.operations, committedOperation{a.tried(c.tx), c})
			if c.cancel && a.p.cancelTried.IsZero() {
				a.p.cancelTried = a.tried(c.tx)
			}
		case wasTakenBack:
			a.takeBack(c)
		case wasRolledBack:
		}
	}
	if operated != want {
		a.problem("%d operations committed, %d rows", want, operated)
	}
	if a.tooLate && a.p.cancelled {
		a.problem("cancelled and too late")
	}
	a.checkHead(head)
	return &a.p
}

// takeBack judges an operation that the database has lost: it may have had
// its effect, and a message may go out at both times.
func (a *audit) takeBack(c bookedOperation) {
	a.p.forgotten, a.certain = true, false
	if c.cancel {
		a.p.maybe = true
	} else {
		a.p.dues, a.p.lostDues = append(a.p.dues, c.due), append(a.p.lostDues, c.due)
	}
}

// apply judges one operation by what its row says.
func (a *audit) apply(r outboxRow) {
	name := "reschedule "
	if r.op == opCancel {
		name = "cancel "
	}
	name += rowStates[r.status]
	if r.reason != "" {
		name += " (" + r.reason + ")"
	}
	a.tally.Operations[name]++
	due := time.UnixMilli(r.dueMs)
	switch {
	case r.status == rowSuperseded:
	case r.status == rowPending, r.status == rowRefused, r.status == rowPublished:
		a.problem("operation %d is %s", r.number, rowStates[r.status])
	case r.op == opCancel && r.status == rowCancelled:
		a.p.cancelled = true
	case r.op == opCancel && r.status == rowUnknown:
		a.p.maybe = true
	case r.op == opCancel && r.status == rowTooLate:
		a.tooLate = true
	case r.status == rowTooLate:
	case r.status == rowStored && a.certain:
		a.p.dues = []time.Time{due}
	default: // A copy may be out with the due time before.
		a.p.dues, a.certain = append(a.p.dues, due), false
	}
}

// checkHead compares the message's own row, if it is still there.
func (a *audit) checkHead(head *outboxRow) {
	if head == nil {
		a.problem("no row")
		return
	}
	due := a.p.dues[len(a.p.dues)-1]
	if a.certain && head.dueMs != due.UnixMilli() {
		a.problem("the row's due time is not %d", due.UnixMilli())
	}
	switch head.status {
	case rowCancelled:
		if !a.p.cancelled && !a.p.maybe {
			a.problem("nobody has cancelled it")
		}
	case rowPublished:
		if a.p.cancelled {
			a.problem("published and cancelled")
		}
		a.p.maybe = false // It must have arrived.
	case rowUnknown:
		a.p.maybe = true
	default:
		a.problem("the row is %s", rowStates[head.status])
	}
}

// judged records the final judgement of a message.
func (l *Ledger) judged(m delay.Message, p *promise, problems []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promise(m, m.ID, p)
	l.problems = append(l.problems, problems...)
}
