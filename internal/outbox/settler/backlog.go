package settler

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// ledgerRef is a shard's ledger.
type ledgerRef struct {
	queue string
	shard int
}

func (r ledgerRef) compare(to ledgerRef) int {
	return cmp.Or(cmp.Compare(r.queue, to.queue), cmp.Compare(r.shard, to.shard))
}

// notice is a fate that a row must get: from an entry of a ledger or, without one, from an
// acknowledgement that came too late for Redis. It is a record.
type notice struct {
	fate  table.Fate
	entry store.RowFate
	from  ledgerRef
}

func tell(from ledgerRef, queue string, row store.RowFate) notice {
	fate := table.Fate{Version: table.Version{Identity: table.Identity{Queue: queue, Key: row.Key, ID: row.ID}, Token: row.Token}}
	switch row.What {
	case store.FatePublished:
		fate.State = table.StatePublished
	case store.FateCancelled:
		fate.State, fate.Maybe = table.StateCancelled, row.Maybe
	case store.FateMoved:
		fate.State, fate.DueMs, fate.Maybe = table.StateStored, row.DueAt.UnixMilli(), row.Maybe
	}
	return notice{fate, row, from}
}

// backlog is the machine that holds a settler's work: ledgers with new entries, and late
// acknowledgements. A pass takes all of it, and gives back the rest.
//
//	notify, sweep, acknowledge ──► backlog ──begin──► pass ──end──► backlog: what is left
//
// So a signalled ledger is read, however often that fails.
type backlog struct {
	dirty   map[ledgerRef]bool
	stale   []notice
	dropped int       // late acknowledgements for which there was no room
	swept   time.Time // when all held ledgers were last due
	failed  wait.Backoff
}

func newBacklog() backlog {
	return backlog{dirty: map[ledgerRef]bool{}, failed: outbox.NewBackoff()}
}

// notify records that a ledger has new entries.
func (b *backlog) notify(ref ledgerRef) { b.dirty[ref] = true }

// isDue reports whether to read all held ledgers, signalled or not.
func (b *backlog) isDue(now time.Time) bool { return now.Sub(b.swept) >= settleEvery }

// sweep records that all held ledgers must be read.
func (b *backlog) sweep(now time.Time, held []ledgerRef) {
	b.swept = now
	for _, ref := range held {
		b.notify(ref)
	}
}

// acknowledge takes messages that the broker has acknowledged too late for Redis. If too
// many wait, some are forgotten.
func (b *backlog) acknowledge(queue string, rows []store.RowFate) {
	for _, row := range rows {
		switch {
		case !message.IsRowToken(row.Token):
		case len(b.stale) >= staleLimit:
			b.dropped++
		default:
			row.What = store.FatePublished
			b.stale = append(b.stale, tell(ledgerRef{}, queue, row))
		}
	}
}

// begin returns a pass over everything known by now, and how many acknowledgements were forgotten.
func (b *backlog) begin(databases int) (p *pass, dropped int) {
	p = &pass{databases: databases, stale: b.stale, reread: map[ledgerRef]bool{}, refs: slices.SortedFunc(maps.Keys(b.dirty), ledgerRef.compare)}
	dropped = b.dropped
	clear(b.dirty)
	b.stale, b.dropped = nil, 0
	return p, dropped
}

// end takes back the rest of a pass.
func (b *backlog) end(p *pass) {
	for ref := range p.reread {
		b.notify(ref)
	}
	b.stale = slices.Concat(p.retry, b.stale)
}

// pause returns how long to wait after a pass; deaf means to ignore signals meanwhile, because they would
// fail, too.
func (b *backlog) pause(now time.Time, p *pass) (pause time.Duration, deaf bool) {
	if p.failure() != nil {
		return b.failed.Next(), true
	}
	b.failed.Reset()
	if p.busy {
		return busyPause, false
	}
	return b.swept.Add(settleEvery).Sub(now), false
}
