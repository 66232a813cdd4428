package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/store"
)

const (
	// chunkRows is how many rows are read at a time.
	chunkRows = 1000
	// chunksInFlight is how many chunks are written to Redis at a time; each may
	// hold batchBytes in memory.
	chunksInFlight = 4
	// putWithin is how long after its read a row may still be put: a tombstone of
	// what happened since then lives longer.
	putWithin = 25 * time.Second
	// putPhase limits one try.
	putPhase = 10 * time.Second
)

// pass compares the rows of one queue in one database with Redis.
type pass struct {
	*Reconciler
	db     *Database
	queue  *ReconciledQueue
	dry    bool
	report *report
	// again, where not nil, gets what is to be looked at again later.
	again *again
}

// stored is a row whose message should be in Redis.
type stored struct {
	row
	operated bool // operations are pending
	copyOut  bool // the last reschedule was told that a copy may be out
}

// run goes through all rows.
func (p *pass) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(1 + chunksInFlight)
	group.Go(func() error {
		var after keyset
		for {
			started := time.Now()
			rows, err := p.read(ctx, func(ctx context.Context) ([]*stored, error) {
				return p.db.storedAfter(ctx, p.queue.Name, after)
			})
			if err != nil || len(rows) == 0 {
				return err
			}
			last := rows[len(rows)-1]
			after = keyset{last.identity, cursor{last.dueMs, last.number}, true}
			group.Go(func() error { return p.work(ctx, rows, started) })
			if len(rows) < chunkRows {
				return nil
			}
		}
	})
	return group.Wait()
}

// read repeats until the database answers or ctx ends.
func (p *pass) read(ctx context.Context, read func(context.Context) ([]*stored, error)) ([]*stored, error) {
	wait := newBackoff()
	for {
		rows, err := read(ctx)
		p.away.observe(ctx, err)
		if err == nil {
			return rows, nil
		}
		if !sleep(ctx, wait.next(), nil) {
			return nil, fmt.Errorf("read rows: %w", errors.Join(ctx.Err(), err))
		}
	}
}

// work compares one chunk, and repeats what could not be done.
func (p *pass) work(ctx context.Context, rows []*stored, readAt time.Time) error {
	p.report.add(Counts{Looked: int64(len(rows))})
	wait := newBackoff()
	for {
		left, err := p.compare(ctx, rows, readAt)
		p.away.observe(ctx, err)
		if len(left) == 0 {
			return nil
		}
		if !sleep(ctx, wait.next(), nil) {
			return errors.Join(ctx.Err(), err)
		}
		readAt = time.Now()
		if rows, err = p.read(ctx, func(ctx context.Context) ([]*stored, error) { return p.db.storedOf(ctx, identities(left)) }); err != nil {
			return err
		}
	}
}

func identities(rows []*stored) []identity {
	list := make([]identity, len(rows))
	for i, r := range rows {
		list[i] = r.identity
	}
	return list
}

// compare goes through the rows in parts that fit in memory, and returns those
// that are to be read again, with the reason.
func (p *pass) compare(ctx context.Context, rows []*stored, readAt time.Time) (left []*stored, err error) {
	ctx, cancel := context.WithDeadline(ctx, readAt.Add(putWithin))
	defer cancel()
	var free []*stored
	for _, r := range rows {
		if r.operated {
			p.later(r.identity)
			p.report.add(Counts{Skipped: 1})
			continue
		}
		free = append(free, r)
	}
	for len(free) > 0 {
		if ctx.Err() != nil {
			return append(left, free...), errors.Join(err, ctx.Err())
		}
		part := free[:fitting(free)]
		free = free[len(part):]
		again, errPart := p.comparePart(ctx, part)
		left, err = append(left, again...), errors.Join(err, errPart)
		for _, r := range part {
			r.content.body = nil
		}
	}
	return left, err
}

func fitting(rows []*stored) int {
	plain := make([]*row, len(rows))
	for i, r := range rows {
		plain[i] = &r.row
	}
	return affordable(plain)
}

func (p *pass) comparePart(ctx context.Context, rows []*stored) (left []*stored, err error) {
	puts, rows, err := p.prepare(ctx, rows)
	if err != nil || len(puts) == 0 {
		return rows, err
	}
	put := p.queue.Redis.Put
	if p.dry {
		put = p.queue.Redis.Peek
	}
	limited, cancel := context.WithTimeout(ctx, putPhase)
	defer cancel()
	var counts Counts
	var created []*stored
	var ended []fate
	for i, answer := range put(limited, puts) {
		r := rows[i]
		if answer.Err != nil && failureOf(answer.Err) != failureNone {
			left, err = append(left, r), answer.Err
			continue
		}
		switch answer.Code {
		case store.Created, store.Absent:
			created = append(created, r)
		case store.Mine:
			counts.There++
		case store.EndedPublished:
			ended = append(ended, fate{r.identity, store.SettledRow{Token: r.token, What: store.FatePublished}})
		case store.EndedCancelled, store.EndedMoved:
			// The ledger or the relay tells the row, unless they have died.
			p.later(r.identity)
			counts.Skipped++
		default:
			counts.Blocked++
		}
	}
	counts.PutBack += int64(len(created))
	again, errChecked := p.recheck(ctx, created, &counts)
	errSettled := p.settleEnded(ctx, ended, &counts)
	p.report.add(counts)
	return append(left, again...), errors.Join(err, errChecked, errSettled)
}

// prepare makes messages of rows; those that are none are left out. One that is
// due by now may have been claimed before Redis lost it, and be published.
func (p *pass) prepare(ctx context.Context, rows []*stored) (puts []store.Row, good []*stored, err error) {
	plain := make([]*row, len(rows))
	for i, r := range rows {
		plain[i] = &r.row
	}
	if !p.dry {
		if err := p.db.complete(ctx, p.db.db, plain); err != nil {
			return nil, rows, err
		}
	}
	now, err := p.queue.Redis.Clock(ctx)
	if err != nil {
		return nil, rows, err
	}
	for _, r := range rows {
		m := &message.Message{ID: r.id, Key: r.key}
		if !p.dry {
			if r.content.size > hugeRow {
				continue
			}
			if m, err = r.message(&p.queue.Queue); err != nil {
				p.log.DebugContext(ctx, "outbox row cannot be put back", "queue", r.queue, "id", r.id, "err", err)
				p.report.add(Counts{Blocked: 1})
				continue
			}
		}
		puts = append(puts, store.Row{Token: r.token, Message: m, DueAt: r.dueAt(), Mark: store.MarkIf(r.copyOut || r.dueMs <= now.UnixMilli())})
		good = append(good, r)
	}
	return puts, good, nil
}
