package trial

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/delay"
)

// Book is what producers have written in their transactions. In the end the
// database says which of them count: those that it committed. A Book is
// safe for concurrent use.
type Book struct {
	mu           sync.Mutex
	messages     map[string]*bookedMessage
	transactions map[string]*bookedTransaction
}

// bookedMessage is one message.
type bookedMessage struct {
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

// committedOperation is an operation and the instant at which it was committed.
type committedOperation struct {
	at time.Time
	bookedOperation
}

// bookedTransaction is a transaction that its producer did not roll back.
type bookedTransaction struct {
	number           int64 // its first row's, 0 if it wrote no message
	tried, committed time.Time
}

// NewBook returns an empty book.
func NewBook() *Book {
	return &Book{messages: map[string]*bookedMessage{}, transactions: map[string]*bookedTransaction{}}
}

func (b *Book) schedule(tx string, m delay.Message, due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages[m.ID] = &bookedMessage{message: m, tx: tx, due: due}
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
	b.transaction(tx).number = number
}

// try records that a commit was requested, and commit that it was confirmed.
func (b *Book) try(tx string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.transaction(tx).tried = time.Now()
}

func (b *Book) commit(tx string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.transaction(tx).committed = time.Now()
}

// transaction holds b.mu.
func (b *Book) transaction(tx string) *bookedTransaction {
	if b.transactions[tx] == nil {
		b.transactions[tx] = &bookedTransaction{}
	}
	return b.transactions[tx]
}

// relayPoll is a relay's poll interval: a transaction that commits that much later than
// one with higher numbers may do so after those were loaded.
const relayPoll = 200 * time.Millisecond

// overtaken counts the transactions that committed well after others with
// higher numbers.
func (b *Book) overtaken() int {
	var list []*bookedTransaction
	for _, t := range b.transactions {
		if !t.committed.IsZero() && t.number != 0 {
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

// Tally counts what the producers did.
type Tally struct {
	// Committed and RolledBack are messages, and TakenBack those that the database
	// may have committed and forgotten. Transactions are those that it has committed,
	// Overtaken those of them that others have.
	Committed, RolledBack, TakenBack, Transactions, Overtaken int
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

// Close compares the book with the database, and records in the ledger what must have
// arrived. What the database lost in an incident may have arrived.
func (b *Book) Close(ctx context.Context, d *Database, ledger *Ledger, incidents []Incident) (Tally, error) {
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
	t := Tally{Transactions: len(committed), Overtaken: b.overtaken(), Operations: map[string]int{}}
	for _, id := range slices.Sorted(maps.Keys(b.messages)) {
		m := b.messages[id]
		a := audit{
			bookedMessage: m, id: id, rows: rows[id], tally: &t,
			fate:  func(tx string) fate { return b.fate(tx, committed, incidents) },
			tried: func(tx string) time.Time { return b.transaction(tx).tried },
		}
		delete(rows, id)
		p := a.promise()
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
