package settler

import (
	"errors"
	"testing"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/testenv/decision"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// TestOfferTable: what becomes of an entry by each answer of a database.
func TestOfferTable(t *testing.T) {
	t.Parallel()
	ledger := ledgerRef{queue: "q"}
	results := map[string]table.FateResult{"settled it": table.FateSettled, "is busy": table.FateBusy, "has it not": table.FateAbsent, "is away": table.FateAbsent}
	decision.Walk(t, "pass.go", []decision.Input{
		decision.Or("the database", decision.Names(results)...), decision.Bool("it is the last one"), decision.Bool("another is away"),
		decision.Or("the entry is of", "a ledger", "a late acknowledgement"),
	}, func(c decision.Case) string {
		p := &pass{databases: 2, reread: map[ledgerRef]bool{}, offer: []notice{{}}}
		if c["the entry is of"] == "a ledger" {
			p.offer[0].from = ledger
		}
		if c.Is("it is the last one") {
			p.database = 1
		}
		if c.Is("another is away") {
			p.away = errors.New("away")
		}
		var err error
		if c["the database"] == "is away" {
			err = errors.New("away, too")
		}
		p.offered([]table.FateResult{results[c["the database"]]}, err)
		switch {
		case len(p.toForget) > 0:
			return "forgotten"
		case len(p.retry) > 0:
			return "kept"
		case p.reread[ledger]:
			return "read again later"
		case len(p.offer) > 0:
			return "offered to the next"
		}
		return "done"
	})
}

// TestPassTable: what a pass does next.
func TestPassTable(t *testing.T) {
	t.Parallel()
	entries := map[string]int{"none": 0, "some": 1, "a batch": settleBatch}
	kinds := map[actionKind]string{actionOffer: "offer", actionForget: "forget", actionRead: "read"}
	decision.Walk(t, "pass.go", []decision.Input{
		decision.Bool("in the batch"), decision.Bool("to be forgotten"), decision.Bool("a database is away"),
		decision.Bool("late acknowledgements"), decision.Or("entries read", decision.Names(entries)...), decision.Bool("ledgers left"),
	}, func(c decision.Case) string {
		p := &pass{databases: 1, reread: map[ledgerRef]bool{}, read: make([]notice, entries[c["entries read"]])}
		if c.Is("in the batch") {
			p.offer = make([]notice, 1)
		}
		if c.Is("to be forgotten") {
			p.toForget = []ledgerEntries{{rows: make([]store.RowFate, 1)}}
		}
		if c.Is("a database is away") {
			p.away = errors.New("away")
		}
		if c.Is("late acknowledgements") {
			p.stale = make([]notice, 1)
		}
		if c.Is("ledgers left") {
			p.refs = make([]ledgerRef, 1)
		}
		kind, isKnown := kinds[p.next().kind]
		if !isKnown {
			return "end"
		}
		return kind
	})
}
