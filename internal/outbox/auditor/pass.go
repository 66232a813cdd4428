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
	// putWithin is how long after its read a row may still be put: a tombstone made since then
	// lives longer.
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

// begin has the next step be of these rows, with a report of its own.
func (p *pass) begin(overdue bool, after table.Cursor) {
	p.overdue, p.after, p.report = overdue, after, &report{observe: p.config.Observe}
	p.missing.Store(false)
}

// step compares at most that many of the next rows, and returns how many they were, and
// whether they were the last. A failure is left to the next turn.
func (p *pass) step(ctx context.Context, most int) (n int, end bool) {
	c, end, err := p.readOnce(ctx, most)
	if p.away.Observe(ctx, err); err != nil {
		p.db.Heed(err)
		return 0, false
	}
	n = len(c.rows) + len(c.whole)
	p.compare(ctx, c)
	return n, end
}

func (p *pass) comparison() *comparison { return &comparison{dry: p.dry, missing: &p.missing} }

// readOnce reads the next rows and advances; end says that they are the last.
func (p *pass) readOnce(ctx context.Context, most int) (c *comparison, end bool, err error) {
	before := int64(table.MaxDueMs)
	if p.overdue {
		now, err := p.queue.Store.Clock(ctx)
		if err != nil {
			return nil, false, err
		}
		before = now.Add(-overdueAfter).UnixMilli()
	}
	c, at, whole := p.comparison(), time.Now(), p.missing.Load() && !p.dry
	var redis outbox.Store
	if whole {
		if redis, err = p.queue.Store.Pin(ctx); err != nil {
			return nil, false, err
		}
	}
	page, err := p.db.Stored().After(ctx, p.queue.Name, p.after, before, most, whole)
	if err != nil {
		return nil, false, err
	}
	if whole {
		c.read(at, redis, page.Rows)
	} else {
		c.ask(page.Rows)
	}
	p.after = page.Last
	p.report.add(Counts{Looked: int64(page.All), Skipped: int64(page.All - len(page.Rows))})
	return c, page.End, nil
}

// read is readOnce, repeated until the database answers or ctx ends.
func (p *pass) read(ctx context.Context) (*comparison, bool, error) {
	pause := outbox.NewBackoff()
	for {
		c, end, err := p.readOnce(ctx, chunkRows)
		if p.away.Observe(ctx, err); err == nil {
			return c, end, nil
		}
		p.db.Heed(err)
		if !wait.Sleep(ctx, pause.Next()) {
			return nil, false, errors.Join(ctx.Err(), err)
		}
	}
}

// work compares a chunk, and retries what failed.
func (p *pass) work(ctx context.Context, c *comparison) error {
	for pause := outbox.NewBackoff(); p.compare(ctx, c); {
		if !wait.Sleep(ctx, pause.Next()) {
			return ctx.Err()
		}
	}
	return nil
}

// compare carries out the actions of a comparison, and reports whether to continue after a pause.
func (p *pass) compare(ctx context.Context, c *comparison) (again bool) {
	a := c.next(time.Now())
	for ; a.kind != actionEnd && a.kind != actionPause; a = c.next(time.Now()) {
		p.report.add(p.do(ctx, c, a))
	}
	p.away.Observe(ctx, a.err)
	return a.kind == actionPause
}

// do asks Redis or the database.
func (p *pass) do(ctx context.Context, c *comparison, a action) Counts {
	limited, cancel := context.WithTimeout(ctx, putPhase)
	defer cancel()
	switch a.kind {
	case actionAsk:
		asked := make([]store.Row, len(a.rows))
		for i, r := range a.rows {
			asked[i] = store.Row{Token: r.Token, Message: &message.Message{ID: r.ID, Key: r.Key}}
		}
		return c.asked(p.queue.Store.Peek(limited, asked))
	case actionRead:
		at := time.Now()
		var whole []*table.Row
		redis, err := p.queue.Store.Pin(ctx)
		if err == nil {
			whole, err = p.db.Stored().Again(ctx, a.rows)
		}
		return c.reread(at, redis, whole, err)
	case actionPut:
		answers, err := p.putBack(ctx, a)
		return c.put(answers, err)
	case actionRenew:
		r, err := p.renew(ctx, a.rows)
		return c.renewed(a.rows, r, err)
	default:
		known, err := p.db.Ended().Settle(ctx, a.fates)
		return c.recorded(known, err)
	}
}

// markOf is when the message of a row, lost by Redis, is marked: if it was due, it may have been
// published before.
func markOf(r *table.Row) store.Mark {
	if r.Maybe {
		return store.MarkAlways
	}
	return store.MarkDue
}

// putBack puts rows of which Redis may know nothing. There is no answer for one that can never
// be put.
func (p *pass) putBack(ctx context.Context, a action) ([]*store.Answer, error) {
	ctx, cancel := context.WithDeadline(ctx, a.until)
	defer cancel()
	if err := p.db.Stored().Complete(ctx, a.rows); err != nil {
		return nil, err
	}
	// What belongs to another Redis is not missing here.
	if err := p.checkLife(ctx, a.redis, p.db.Lives().Confirm); err != nil {
		return nil, err
	}
	limited, end := context.WithTimeout(ctx, putPhase)
	defer end()
	return p.put(ctx, a.rows, nil, func(puts []store.Row) []store.Answer { return a.redis.Put(limited, puts) }), nil
}

// put makes messages of rows, and writes those that can be written.
func (p *pass) put(ctx context.Context, rows []*table.Row, before map[int64]string, write func([]store.Row) []store.Answer) []*store.Answer {
	answers := make([]*store.Answer, len(rows))
	var puts []store.Row
	var good []int
	for i, r := range rows {
		if m := p.message(ctx, r); m != nil {
			puts = append(puts, store.Row{Token: r.Token, Message: m, DueAt: m.DueAt, Mark: markOf(r), Before: before[r.Number]})
			good = append(good, i)
		}
	}
	if len(puts) > 0 {
		for n, answer := range write(puts) {
			answers[good[n]] = &answer
		}
	}
	return answers
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

// message is that of a row, nil if the row can never be put back.
func (p *pass) message(ctx context.Context, r *table.Row) (m *message.Message) {
	err := errHuge
	if !r.IsHuge() {
		m, err = r.Message(p.queue.Sink, p.queue.MaxMessage)
	}
	if err != nil {
		p.log.DebugContext(ctx, "outbox row cannot be put back", "queue", r.Queue, "id", r.ID, "err", err)
		return nil
	}
	return m
}
