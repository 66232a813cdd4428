package flow

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/delay"
)

// Book is what producers have written in their transactions. What of it counts,
// the database tells in the end: the transactions that it has committed. It is
// safe for concurrent use.
type Book struct {
	mu           sync.Mutex
	messages     map[string]*booked
	transactions map[string]*bookedTransaction
}

// booked is one message.
type booked struct {
	message    delay.Message
	tx         string
	due        time.Time
	operations []bookedOperation
}

type bookedOperation struct {
	tx     string
	cancel bool
	due    time.Time
}

type bookedTransaction struct {
	number    int64 // its first row's
	committed time.Time
}

// NewBook returns an empty book.
func NewBook() *Book {
	return &Book{messages: map[string]*booked{}, transactions: map[string]*bookedTransaction{}}
}

func (b *Book) schedule(tx string, m delay.Message, due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages[m.ID] = &booked{message: m, tx: tx, due: due}
}

func (b *Book) operate(id string, c bookedOperation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages[id].operations = append(b.messages[id].operations, c)
}

func (b *Book) due(id string) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.messages[id].due
}

func (b *Book) number(tx string, number int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.transactions[tx] = &bookedTransaction{number: number}
}

func (b *Book) commit(tx string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.transactions[tx]; t != nil {
		t.committed = time.Now()
	}
}

// relayPoll is how often a relay looks: whoever commits that much later than
// one with higher numbers commits after those may have been loaded.
const relayPoll = 200 * time.Millisecond

// overtaken counts the transactions that committed well after others with
// higher numbers.
func (b *Book) overtaken() int {
	var list []*bookedTransaction
	for _, t := range b.transactions {
		if !t.committed.IsZero() {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, func(a, b *bookedTransaction) int { return int(b.number - a.number) })
	n := 0
	var first time.Time // of those with higher numbers
	for _, t := range list {
		if !first.IsZero() && t.committed.Sub(first) > relayPoll {
			n++
		}
		if first.IsZero() || t.committed.Before(first) {
			first = t.committed
		}
	}
	return n
}

// Tally is how many there were of what.
type Tally struct {
	// Committed and RolledBack are messages, Overtaken transactions.
	Committed, RolledBack, Overtaken int
	// Operations are the committed operations by what their rows say.
	Operations map[string]int
	// Pending and Stored are rows that are not finished.
	Pending, Stored int
}

// The table's numbers.
const (
	opHead, opCancel = 0, 1

	rowPending, rowStored, rowPublished, rowCancelled, rowTooLate, rowUnknown, rowRefused, rowSuperseded = 0, 1, 2, 3, 4, 5, 6, 7
)

var rowStates = []string{"pending", "done", "published", "cancelled", "too late", "unknown", "refused", "superseded"}

// Close compares the book with the database, and tells the ledger what must have
// arrived.
func (b *Book) Close(ctx context.Context, d *Database, ledger *Ledger) (Tally, error) {
	committed, err := d.committed(ctx)
	if err != nil {
		return Tally{}, fmt.Errorf("read what was committed: %w", err)
	}
	rows, err := d.outboxRows(ctx)
	if err != nil {
		return Tally{}, fmt.Errorf("read the outbox: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := Tally{Overtaken: b.overtaken(), Operations: map[string]int{}}
	for _, id := range slices.Sorted(maps.Keys(b.messages)) {
		m := b.messages[id]
		a := audit{booked: m, id: id, rows: rows[id], tally: &t}
		delete(rows, id)
		p := a.promise(committed)
		ledger.judged(m.message, p, a.problems)
		if p.missing() {
			a.problem("due %s, operations %+v, transaction %+v", m.due.UTC(), m.operations, b.transactions[m.tx])
			ledger.judged(m.message, p, a.problems[len(a.problems)-1:])
		}
	}
	for id := range rows {
		ledger.judged(delay.Message{ID: id}, &promise{refused: true}, []string{id + ": has a row, but nobody wrote it"})
	}
	t.Pending, t.Stored, err = d.unfinished(ctx)
	return t, err
}

// audit is about one message.
type audit struct {
	*booked
	id       string
	rows     []outboxRow
	tally    *Tally
	problems []string

	p       promise
	certain bool // it is known which due time is the last one
	tooLate bool
}

func (a *audit) problem(format string, args ...any) {
	a.problems = append(a.problems, a.id+": "+fmt.Sprintf(format, args...)+fmt.Sprintf("; rows %+v", a.rows))
}

// promise is what the rows promise.
func (a *audit) promise(committed map[string]bool) *promise {
	if !committed[a.tx] {
		a.tally.RolledBack++
		if len(a.rows) > 0 {
			a.problem("rolled back, but has rows")
		}
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
		if committed[c.tx] {
			want++
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

// judged records what is known of a message in the end.
func (l *Ledger) judged(m delay.Message, p *promise, problems []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.promise(m, m.ID, p)
	l.problems = append(l.problems, problems...)
}
