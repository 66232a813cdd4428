package auditor

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

const (
	// chunkRows is how many rows are read at a time.
	chunkRows = 1000
	// chunksInFlight is how many chunks of all queues are written to Redis at a time;
	// each may hold as much as is affordable.
	chunksInFlight = 4
	// putWithin is how long after its read a row may still be put: a tombstone of
	// what happened since then lives longer.
	putWithin = 25 * time.Second
	// putPhase limits one try.
	putPhase = 10 * time.Second
)

// pass compares the stored rows of one queue in one database with Redis, in the
// order of their due times.
type pass struct {
	*Auditor
	db      *table.Database
	queue   *Queue
	dry     bool
	overdue bool // only overdue ones
	report  *report
	after   table.Cursor
	// missing: of the chunk before, Redis had the lesser part. Then the next is read
	// whole and put at once; else Redis is asked first, which costs less.
	missing atomic.Bool
}

// chunk are rows that are compared together.
type chunk struct {
	rows []*table.Row
	// whole rows may be put: they were read at that instant, by one who knew the store
	// as it is pinned.
	whole  bool
	readAt time.Time
	redis  outbox.Store
}

// run goes through all rows. The error is that ctx has ended.
func (p *pass) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for {
		select {
		case p.slots <- struct{}{}:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), group.Wait())
		}
		c, end, err := p.read(ctx)
		if err != nil {
			<-p.slots
			return errors.Join(err, group.Wait())
		}
		group.Go(func() error {
			defer func() { <-p.slots }()
			return p.work(ctx, c)
		})
		if end {
			return group.Wait()
		}
	}
}

// step compares the next rows, at most so many, and returns how many they were, and
// whether they were the last. What fails is left to the next turn.
func (p *pass) step(ctx context.Context, most int) (n int, end bool) {
	c, end, err := p.readOnce(ctx, most)
	if p.away.Observe(ctx, err); err != nil {
		p.db.Heed(err)
		return 0, false
	}
	_, err = p.compare(ctx, c)
	p.away.Observe(ctx, err)
	return len(c.rows), end
}

// readOnce reads the next rows, and goes on; end says that they are the last.
func (p *pass) readOnce(ctx context.Context, most int) (c chunk, end bool, err error) {
	before := int64(table.MaxDueMs)
	if p.overdue {
		now, err := p.queue.Store.Clock(ctx)
		if err != nil {
			return c, false, err
		}
		before = now.Add(-overdueAfter).UnixMilli()
	}
	if p.missing.Load() && !p.dry {
		c.whole, c.readAt = true, time.Now()
		if c.redis, err = p.queue.Store.Pin(ctx); err != nil {
			return c, false, err
		}
	}
	page, err := p.db.Stored().After(ctx, p.queue.Name, p.after, before, most, c.whole)
	if err != nil {
		return c, false, err
	}
	c.rows, p.after = page.Rows, page.Last
	p.report.add(Counts{Looked: int64(page.All), Skipped: int64(page.All - len(c.rows))})
	return c, page.End, nil
}

// read is readOnce, repeated until the database answers or ctx ends.
func (p *pass) read(ctx context.Context) (c chunk, end bool, err error) {
	pause := outbox.NewBackoff()
	for {
		c, end, err := p.readOnce(ctx, chunkRows)
		if p.away.Observe(ctx, err); err == nil {
			return c, end, nil
		}
		p.db.Heed(err)
		if !wait.Sleep(ctx, pause.Next()) {
			return c, end, errors.Join(ctx.Err(), err)
		}
	}
}

// work compares a chunk, and repeats what could not be done.
func (p *pass) work(ctx context.Context, c chunk) error {
	pause := outbox.NewBackoff()
	for {
		left, err := p.compare(ctx, c)
		p.away.Observe(ctx, err)
		if len(left) == 0 {
			return nil
		}
		if !wait.Sleep(ctx, pause.Next()) {
			return errors.Join(ctx.Err(), err)
		}
		c = chunk{rows: left}
	}
}

// compare compares rows, and returns those that are to be compared again, with the
// reason. Those that are whole may be missing; of the others, Redis is asked first.
func (p *pass) compare(ctx context.Context, c chunk) (left []*table.Row, err error) {
	if len(c.rows) == 0 {
		return nil, nil
	}
	if !c.whole {
		var absent []*table.Row
		if absent, left, err = p.ask(ctx, c.rows); err != nil {
			return append(left, absent...), err
		}
		p.missing.Store(2*len(absent) > len(c.rows))
		if len(absent) == 0 || p.dry {
			p.report.add(Counts{PutBack: int64(len(absent))})
			return left, nil
		}
		if c, err = p.readAgain(ctx, absent); err != nil {
			return append(left, absent...), err
		}
	}
	ctx, cancel := context.WithDeadline(ctx, c.readAt.Add(putWithin))
	defer cancel()
	there := 0
	for rest := c.rows; len(rest) > 0; {
		if ctx.Err() != nil {
			return append(left, rest...), errors.Join(err, ctx.Err())
		}
		part := rest[:table.Affordable(rest)]
		rest = rest[len(part):]
		found, errPart := p.putBack(ctx, c.redis, part)
		left, err = append(left, found.left...), errors.Join(err, errPart)
		there += int(found.counts.There)
		for _, r := range part {
			r.Content.Body = nil
		}
	}
	if 2*there > len(c.rows) {
		p.missing.Store(false)
	}
	return left, err
}

// readAgain reads rows whole, as they are now.
func (p *pass) readAgain(ctx context.Context, rows []*table.Row) (c chunk, err error) {
	c.whole, c.readAt = true, time.Now()
	if c.redis, err = p.queue.Store.Pin(ctx); err != nil {
		return c, err
	}
	c.rows, err = p.db.Stored().Again(ctx, rows)
	p.report.add(Counts{Skipped: int64(len(rows) - len(c.rows))})
	return c, err
}

// ask asks Redis for the rows' tokens, and returns those of which it knows nothing.
func (p *pass) ask(ctx context.Context, rows []*table.Row) (absent, left []*table.Row, err error) {
	asked := make([]store.Row, len(rows))
	for i, r := range rows {
		asked[i] = store.Row{Token: r.Token, Message: &message.Message{ID: r.ID, Key: r.Key}}
	}
	limited, cancel := context.WithTimeout(ctx, putPhase)
	defer cancel()
	var found findings
	for i, answer := range p.queue.Store.Peek(limited, asked) {
		if answer.Err == nil && answer.Code == store.Absent {
			absent = append(absent, rows[i])
			continue
		}
		found.add(rows[i], answer)
	}
	again, err := p.renew(ctx, found.waiting)
	return absent, append(found.left, again...), errors.Join(err, found.err, p.tell(ctx, &found))
}

// markOf is when a row's message is marked that Redis has lost: it may have been
// published before, if it was due.
func markOf(r *table.Row) store.Mark {
	if r.Maybe {
		return store.MarkAlways
	}
	return store.MarkDue
}

// putBack puts rows of which Redis may know nothing.
func (p *pass) putBack(ctx context.Context, redis outbox.Store, rows []*table.Row) (found findings, err error) {
	if err := p.db.Stored().Complete(ctx, rows); err != nil {
		found.left = rows
		return found, err
	}
	var puts []store.Row
	var good []*table.Row
	for _, r := range rows {
		m, err := p.message(ctx, r)
		if err != nil {
			continue
		}
		puts = append(puts, store.Row{Token: r.Token, Message: m, DueAt: m.DueAt, Mark: markOf(r)})
		good = append(good, r)
	}
	if len(puts) == 0 {
		return found, nil
	}
	// What belongs to another Redis is not missing here.
	if err := p.checkLife(ctx, redis, p.db.Lives().Confirm); err != nil {
		found.left = good
		return found, err
	}
	limited, cancel := context.WithTimeout(ctx, putPhase)
	defer cancel()
	for i, answer := range redis.Put(limited, puts) {
		found.add(good[i], answer)
	}
	again, err := p.renew(ctx, found.waiting)
	found.left = append(found.left, again...)
	return found, errors.Join(err, found.err, p.tell(ctx, &found))
}

// checkLife reports where the rows belong to another Redis; confirm reads that in a
// transaction or outside.
func (p *pass) checkLife(ctx context.Context, redis outbox.Store, confirm func(ctx context.Context, queue, ours string) (table.Life, error)) error {
	life, err := confirm(ctx, p.queue.Name, redis.Life())
	if err != nil {
		return err
	}
	return outbox.CheckLife(p.queue.Name, redis.Life(), life.Name, life.Silent)
}

var errHuge = errors.New("headers and body are too large to read")

// message is that of a row, or why the row can never be put back.
func (p *pass) message(ctx context.Context, r *table.Row) (m *message.Message, err error) {
	if r.IsHuge() {
		err = errHuge
	} else {
		m, err = r.Message(p.queue.Sink, p.queue.MaxMessage)
	}
	if err != nil {
		p.log.DebugContext(ctx, "outbox row cannot be put back", "queue", r.Queue, "id", r.ID, "err", err)
		p.report.add(Counts{Blocked: 1})
	}
	return m, err
}

// findings are what Redis has answered.
type findings struct {
	counts Counts
	ended  []table.Fate
	// waiting are rows for which another message of their identity waits, or is published.
	waiting []*table.Row
	left    []*table.Row
	err     error // why some are left
}

func (f *findings) add(r *table.Row, answer store.Answer) {
	if answer.Err != nil {
		f.left, f.err = append(f.left, r), answer.Err
		return
	}
	switch answer.Code {
	case store.Created:
		f.counts.PutBack++
	case store.Mine:
		f.counts.There++
	case store.EndedPublished:
		f.ended = append(f.ended, table.Fate{Version: r.Version(), State: table.StatePublished})
	case store.EndedCancelled:
		f.ended = append(f.ended, table.Fate{Version: r.Version(), State: table.StateCancelled})
	case store.EndedMaybe:
		f.ended = append(f.ended, table.Fate{Version: r.Version(), State: table.StateCancelled, Maybe: true})
	case store.EndedMoved:
		f.counts.Skipped++ // The operation that has moved it is done again.
	case store.Waiting, store.InFlight:
		f.waiting = append(f.waiting, r)
	default:
		f.counts.Blocked++
	}
}

// tell tells rows that their message has ended.
func (p *pass) tell(ctx context.Context, f *findings) error {
	defer func() { p.report.add(f.counts) }()
	if p.dry {
		f.counts.Settled += int64(len(f.ended))
		return nil
	}
	if len(f.ended) == 0 {
		return nil
	}
	known, err := p.db.Ended().Settle(ctx, f.ended)
	if err != nil {
		return err
	}
	for _, k := range known {
		if k == table.KnownSettled {
			f.counts.Settled++
		} else {
			f.counts.Skipped++
		}
	}
	return nil
}
