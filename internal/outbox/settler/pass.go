package settler

import (
	"errors"
	"fmt"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// actionKind is the kind of a pass' next action.
type actionKind uint8

const (
	actionEnd    actionKind = iota
	actionRead              // the next page of a ledger: paged
	actionOffer             // fates to a database: offered
	actionForget            // entries of a ledger: forgot
)

// action is the next action with its arguments. It is a record.
type action struct {
	kind     actionKind
	ledger   ledgerRef
	cursor   uint64
	database int
	fates    []table.Fate
	entries  []store.RowFate
}

// pass is the machine that settles late acknowledgements, and then whole ledgers, in batches that may
// span several of them.
//
//	         ┌─► read a page ──► … a batch is full, or all is read
//	next ──► ├─► offer the batch to database 1, what that has not to 2, …
//	         ├─► forget, by ledger, what a row says, or what all have answered that they have not
//	         └─► end: one database is away, or nothing is left to read
//
// An entry is forgotten when a database has settled it, or none has such a row. All other entries
// that it met stay in ledgers that it leaves: those of busy rows, of a database that is away, and
// those that Redis failed to read or forget.
type pass struct {
	databases int
	stale     []notice    // not offered yet
	refs      []ledgerRef // not read to the end: the first one is at cursor
	cursor    uint64
	read      []notice // not offered yet
	offer     []notice // of the batch: no database has known these yet
	database  int      // the one that is asked next
	toForget  []ledgerEntries

	reread      map[ledgerRef]bool // to be read again
	retry       []notice           // acknowledgements to be offered again
	busy        bool
	away, redis error
}

// ledgerEntries are entries of one ledger, to be forgotten. It is a record.
type ledgerEntries struct {
	from ledgerRef
	rows []store.RowFate
}

// next is the next action.
//
//	in the batch | to be forgotten | a database is away | late acknowledgements | entries read | ledgers left → do
//	yes          | *               | *                  | *                     | *            | *            → offer
//	no           | yes             | *                  | *                     | *            | *            → forget
//	no           | no              | yes                | *                     | *            | *            → end
//	no           | no              | no                 | yes                   | *            | *            → offer
//	no           | no              | no                 | no                    | a batch      | *            → offer
//	no           | no              | no                 | no                    | some         | no           → offer
//	no           | no              | no                 | no                    | *            | yes          → read
//	no           | no              | no                 | no                    | none         | no           → end
func (p *pass) next() action {
	switch {
	case len(p.offer) > 0:
	case len(p.toForget) > 0:
		return action{kind: actionForget, ledger: p.toForget[0].from, entries: p.toForget[0].rows}
	case p.away != nil:
		p.stop(nil)
		return action{}
	case len(p.stale) > 0:
		p.offer, p.stale = cut(p.stale)
	case len(p.read) >= settleBatch || len(p.refs) == 0 && len(p.read) > 0:
		p.offer, p.read = cut(p.read)
	case len(p.refs) > 0:
		return action{kind: actionRead, ledger: p.refs[0], cursor: p.cursor}
	default:
		return action{}
	}
	offer := action{kind: actionOffer, database: p.database}
	for _, t := range p.offer {
		offer.fates = append(offer.fates, t.fate)
	}
	return offer
}

func cut(list []notice) (batch, rest []notice) {
	n := min(len(list), settleBatch)
	return list[:n], list[n:]
}

// paged takes a page of the ledger; next is where the following one begins, 0 at the end. One
// that fails is read again later; all others are read now.
func (p *pass) paged(rows []store.RowFate, next uint64, err error) {
	ref := p.refs[0]
	for _, row := range rows {
		p.read = append(p.read, tell(ref, ref.queue, row))
	}
	if p.redis = errors.Join(p.redis, err); err != nil {
		next, p.reread[ref] = 0, true
	}
	if p.cursor = next; next == 0 {
		p.refs = p.refs[1:]
	}
}

// offered takes a database's answers to what it was offered. While one is away, entries that the
// others do not know are busy.
//
//	the database | it is the last one | another is away | the entry is of          → it is
//	settled it   | *                  | *               | a ledger                 → forgotten
//	settled it   | *                  | *               | a late acknowledgement   → done
//	is busy      | *                  | *               | a ledger                 → read again later
//	is busy      | *                  | *               | a late acknowledgement   → kept
//	has it not   | no                 | *               | *                        → offered to the next
//	is away      | no                 | *               | *                        → offered to the next
//	has it not   | yes                | no              | a ledger                 → forgotten
//	has it not   | yes                | no              | a late acknowledgement   → done
//	has it not   | yes                | yes             | a ledger                 → read again later
//	has it not   | yes                | yes             | a late acknowledgement   → kept
//	is away      | yes                | *               | a ledger                 → read again later
//	is away      | yes                | *               | a late acknowledgement   → kept
func (p *pass) offered(known []table.FateResult, err error) {
	p.away = errors.Join(p.away, err)
	var rest []notice
	for i, t := range p.offer {
		switch {
		case err != nil || known[i] == table.FateAbsent:
			rest = append(rest, t)
		case known[i] == table.FateBusy:
			p.leave(t)
		default:
			p.forget(t)
		}
	}
	p.offer = rest
	if p.database++; p.database < p.databases && len(rest) > 0 {
		return
	}
	for _, t := range rest {
		if p.away != nil {
			p.leave(t)
		} else {
			p.forget(t)
		}
	}
	p.offer, p.database = nil, 0
}

func (p *pass) forget(t notice) {
	if t.from == (ledgerRef{}) {
		return
	}
	if n := len(p.toForget); n > 0 && p.toForget[n-1].from == t.from {
		p.toForget[n-1].rows = append(p.toForget[n-1].rows, t.entry)
		return
	}
	p.toForget = append(p.toForget, ledgerEntries{t.from, []store.RowFate{t.entry}})
}

func (p *pass) leave(t notice) {
	if p.busy = true; t.from == (ledgerRef{}) {
		p.retry = append(p.retry, t)
	} else {
		p.reread[t.from] = true
	}
}

// forgot says whether the ledger has forgotten the entries.
func (p *pass) forgot(err error) {
	if p.redis = errors.Join(p.redis, err); err != nil {
		p.reread[p.toForget[0].from] = true
	}
	p.toForget = p.toForget[1:]
}

// stop leaves all that is not settled.
func (p *pass) stop(err error) {
	p.away = errors.Join(p.away, err)
	for _, list := range [][]notice{p.offer, p.read, p.stale} {
		for _, t := range list {
			p.leave(t)
		}
	}
	for _, ref := range p.refs {
		p.reread[ref] = true
	}
	p.offer, p.read, p.stale, p.refs = nil, nil, nil, nil
}

// failure is the error of what was away: a database, or else Redis.
func (p *pass) failure() error {
	if p.away == nil && p.redis != nil {
		return fmt.Errorf("%w: %w", errRedis, p.redis)
	}
	return p.away
}
