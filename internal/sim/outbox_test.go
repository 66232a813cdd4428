package sim

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/delay"
	sdk "github.com/delaybridge/delaybridge/delay/outbox"
	"github.com/delaybridge/delaybridge/delay/outbox/schema"
	"github.com/delaybridge/delaybridge/internal/compensation/consumer"
	"github.com/delaybridge/delaybridge/internal/engine/compensation"
	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/store/job"
	"github.com/delaybridge/delaybridge/internal/engine/store/layout"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/auditor"
	"github.com/delaybridge/delaybridge/internal/outbox/relay"
	"github.com/delaybridge/delaybridge/internal/outbox/settler"
	"github.com/delaybridge/delaybridge/internal/outbox/sqldb"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
	"github.com/delaybridge/delaybridge/internal/sinks/source"
)

// box is the outbox of a bridge: its parts put together as package app does it.
type box struct {
	b        *bridge
	database *table.Database
	relay    *relay.Relay
	settler  *settler.Settler
	auditor  *auditor.Auditor
	writer   *consumer.Writer
	news     chan struct{} // of 1: there are compensation messages
	made     chan struct{} // closed when the layout is made

	taking, relaying, settling context.CancelFunc
	consuming, relays, settled sync.WaitGroup
	halted                     chan struct{}
}

// boxConfig is what a seed decides of the outbox.
type boxConfig struct {
	isThere                             bool
	horizon, poll, keep, keepOperations time.Duration
	discard                             bool
	lanes, batch                        int
	skew                                time.Duration // of the database's clock
}

func newBoxConfig(random *rand.Rand) boxConfig {
	c := boxConfig{
		isThere: random.IntN(2) == 0,
		horizon: []time.Duration{time.Hour, time.Hour, 10 * time.Second}[random.IntN(3)], poll: between(random, 300*time.Millisecond, 5*time.Second),
		keep: []time.Duration{24 * time.Hour, 24 * time.Hour, time.Minute}[random.IntN(3)], discard: random.IntN(6) == 0,
		lanes: 1 + random.IntN(2), batch: 1 + random.IntN(100),
	}
	if c.keep == time.Minute && random.IntN(2) == 0 {
		c.keepOperations = 30 * time.Second
	}
	if random.IntN(3) == 0 {
		c.skew = time.Duration(random.IntN(120)-60) * time.Second
	}
	return c
}

// openBox makes it, if the story has one. The bridge's queue is not in use yet.
func (b *bridge) openBox(logger *slog.Logger) (*box, error) {
	if !b.w.plan.box.isThere {
		return nil, nil
	}
	c, x := b.w.plan.box, &box{b: b, news: make(chan struct{}, 1), made: make(chan struct{}), halted: make(chan struct{})}
	var err error
	if x.database, err = table.Open(table.Config{
		Dialect: schema.MySQL, Source: sqldb.Source{Connector: connector{b.h}}, Connections: c.lanes + 6, Discard: c.discard,
	}); err != nil {
		return nil, err
	}
	queue := outbox.Queue{Name: queueName, Store: outbox.NewStore(b.queue.Rows()), Sink: message.NATS, MaxMessage: message.DefaultMaxSize}
	if x.relay, err = relay.New(relay.Config{
		Database: x.database, Queues: []outbox.Queue{queue}, Horizon: c.horizon, Poll: c.poll, Keep: c.keep, KeepOperations: c.keepOperations,
		Batch: c.batch, Lanes: c.lanes, Mine: b.isFirst, Logger: logger,
		Clock: func(ctx context.Context) (time.Time, error) {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			return b.queue.Clock(ctx)
		},
	}); err != nil {
		return nil, err
	}
	if x.settler, err = settler.New(settler.Config{
		Databases: []settler.Database{{Database: x.database}}, Queues: []settler.Queue{{Name: queueName, Store: b.queue.Rows(), Held: b.polled}}, Logger: logger,
	}); err != nil {
		return nil, err
	}
	b.queue.WithLedger(func(shard int) { x.settler.Notify(queueName, shard) })
	if x.auditor, err = auditor.New(auditor.Config{
		Databases: []*table.Database{x.database}, Queues: []auditor.Queue{{Queue: queue, Mine: b.isFirst}}, Flush: x.settler.Flush, Logger: logger,
	}); err != nil {
		return nil, err
	}
	x.writer = consumer.NewWriter(consumer.WriterConfig{
		Store: b.queue.Rows(), Rows: x, Dead: &sink{h: b.h}, Topic: compensation.Topic(queueName), Observer: noObserver{}, Logger: logger,
	})
	return x, nil
}

// Compensated implements [consumer.Observer].
func (noObserver) Compensated(string, consumer.Result) {}

// polled are the shards that the bridge polls now.
func (b *bridge) polled() []int {
	b.mu.Lock()
	p := b.poller
	b.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.Shards()
}

// isFirst reports whether it does what one bridge does for the queue.
func (b *bridge) isFirst() bool { return slices.Contains(b.polled(), 0) }

// lateAcks is told of acknowledgements that came too late.
func (x *box) lateAcks(acked []message.ClaimedMessage) {
	if x == nil {
		return
	}
	rows := make([]store.RowFate, len(acked))
	for i, m := range acked {
		rows[i] = store.RowFate{Token: m.Token, ID: m.ID, Key: m.Key, What: store.FatePublished}
	}
	x.b.w.ask(x.b.h.name+" acknowledges late "+rows[0].ID, func() { x.b.w.model.ackedLate(x.b, rows) })
	x.settler.Acknowledged(queueName, rows)
}

// reborn is told that Redis has lost something.
func (x *box) reborn() {
	if x != nil {
		x.auditor.Suspect(queueName)
	}
}

// prepared is told that the layout is made.
func (x *box) prepared() {
	if x != nil {
		close(x.made)
	}
}

// TakeIdentity implements [consumer.Rows].
func (x *box) TakeIdentity(ctx context.Context, queue, key, id string) (found bool, err error) {
	if err := x.relay.State(); err != nil {
		return false, err
	}
	taken, err := x.relay.TakeIdentity(ctx, queue, key, id)
	if taken == relay.TakeLocked {
		err = errors.Join(err, errors.New("locked"))
	}
	return taken == relay.TakeDone && err == nil, err
}

func (x *box) start() {
	if x == nil {
		return
	}
	var taking, relaying, settling context.Context
	taking, x.taking = context.WithCancel(context.Background())
	relaying, x.relaying = context.WithCancel(context.Background())
	settling, x.settling = context.WithCancel(context.Background())
	x.settled.Go(func() { _ = x.settler.Run(settling) })
	x.relays.Go(func() { x.run(relaying) })
	x.consuming.Go(func() { x.consume(taking) })
}

func (x *box) run(ctx context.Context) {
	var auditing sync.WaitGroup
	defer auditing.Wait()
	auditing.Go(func() {
		select {
		case <-x.relay.Ready():
			_ = x.auditor.Run(ctx)
		case <-ctx.Done():
		}
	})
	select {
	case <-x.made:
	case <-ctx.Done():
		return
	}
	for ctx.Err() == nil {
		if err := x.relay.Run(ctx); ctx.Err() == nil {
			x.b.w.fail("%s: %s", x.b.h.name, err) // The database is fit.
		}
	}
}

// halt has everything stop taking, and does not wait.
func (x *box) halt() {
	if x == nil {
		return
	}
	x.taking()
	go func() {
		defer close(x.halted)
		x.consuming.Wait()
		x.relaying()
		x.relays.Wait()
	}()
}

// finish waits for what halt has begun, and then tells the rows what the pollers have published last.
func (x *box) finish(ctx context.Context) {
	if x == nil {
		return
	}
	<-x.halted
	x.settling()
	x.settled.Wait()
	flush, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_ = x.settler.Flush(flush)
	_ = x.database.Close()
}

// letters are the compensation messages at the broker, which delivers each at least once.
type letters struct {
	w   *world
	all []*letter
}

type letter struct {
	delivery source.Delivery
	with     *box // that has it now
}

// publish is the producers' way to the broker.
func (ls *letters) publish(ctx context.Context, _ string, _ map[string]string, body []byte) error {
	w, done := ls.w, make(chan error, 1)
	w.ask("compensation "+string(body), func() {
		stores, err := true, error(nil)
		if w.broker.isDown {
			stores, err = w.chance(2), errBroker
		}
		w.after(w.between(200*time.Microsecond, 20*time.Millisecond), "", func() {
			if stores {
				w.tell("  compensation is there")
				ls.all = append(ls.all, &letter{delivery: source.Delivery{Body: slices.Clone(body)}})
				ls.deliver()
			}
			done <- err
		})
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// deliver tells a bridge that there is something.
func (ls *letters) deliver() {
	if all := ls.w.plan.fleet.all; len(all) > 0 {
		select {
		case all[ls.w.random.IntN(len(all))].box.news <- struct{}{}:
		default:
		}
	}
}

// take gives a bridge what no other one has.
func (ls *letters) take(x *box) (taken []*letter) {
	for _, l := range ls.all {
		if l.with == nil && len(taken) < 20 {
			l.with = x
			taken = append(taken, l)
		}
	}
	return taken
}

// leave has what a bridge had be delivered to another.
func (ls *letters) leave(x *box) {
	for _, l := range ls.all {
		if l.with == x {
			l.with, l.delivery.Redelivered = nil, true
		}
	}
	ls.deliver()
}

// consume handles compensation messages until ctx ends.
func (x *box) consume(ctx context.Context) {
	w := x.b.w
	in := func(what string, do func()) {
		over := make(chan struct{})
		w.ask(x.b.h.name+" "+what, func() { do(); close(over) })
		<-over
	}
	for ctx.Err() == nil {
		var taken []*letter
		in("takes compensations", func() { taken = w.letters.take(x) })
		for len(taken) > 0 && ctx.Err() == nil {
			batch := make([]*source.Delivery, len(taken))
			for i, l := range taken {
				batch[i] = &l.delivery
			}
			errs := x.writer.Handle(ctx, batch)
			var left []*letter
			in("has handled compensations", func() {
				for i, l := range taken {
					switch {
					case errs[i] != nil:
						left = append(left, l)
					case w.chance(10): // The acknowledgement gets lost.
						l.with, l.delivery.Redelivered = nil, true
					default:
						w.letters.all = slices.DeleteFunc(w.letters.all, func(other *letter) bool { return other == l })
					}
				}
			})
			if taken = left; len(taken) > 0 && !wait.Sleep(ctx, 250*time.Millisecond) {
				break
			}
		}
		if !wait.SleepOrWake(ctx, 10*time.Second, x.news) {
			break
		}
	}
	in("leaves compensations", func() { w.letters.leave(x) })
}

// openBoxes are the producers' ways to the database.
func (p *producer) openBoxes(w *world) {
	if !w.plan.box.isThere {
		return
	}
	p.db = sql.OpenDB(connector{p.h})
	p.db.SetMaxIdleConns(8)
	w.plan.clients = append(w.plan.clients, p.db)
	opts := []sdk.Option{
		sdk.WithRedis(p.rdb, prefix), sdk.WithHorizon(w.plan.box.horizon), sdk.WithCompensation(w.letters.publish), sdk.WithMerge(),
	}
	p.boxes = map[delay.Conflict]*sdk.Outbox{}
	for _, conflict := range []delay.Conflict{delay.Reject, delay.Keep, delay.Replace} {
		p.boxes[conflict] = sdk.New(sdk.MySQL, append(slices.Clone(opts), sdk.WithConflict(conflict))...)
	}
}

// boxStory is one identity that is scheduled with the outbox.
type boxStory struct {
	*actor
	p       *producer
	id, key string
	isHot   bool // what is done about it comes at about the time when it is due
	isLate  bool // it is due now, or when the night is over
	isFar   bool // it is due much later than it is cancelled beside its row

	onlyEnds bool // it is to be cancelled, and nothing else
}

// boxBurst has callers write rows.
func (w *world) boxBurst(d *decision) {
	if !w.plan.box.isThere {
		return
	}
	random := d.random()
	p := w.plan.producers[random.IntN(len(w.plan.producers))]
	isSharp := w.plan.isOfRows || d.kind != "outbox"
	n := 10
	if isSharp {
		n = 4
	}
	for i := range 1 + random.IntN(n) {
		own := rand.New(rand.NewPCG(d.seed, uint64(i)))
		s := &boxStory{p: p, id: fmt.Sprintf("x%d-%d", d.index, i)}
		if own.IntN(4) > 0 {
			s.key = fmt.Sprintf("k%d", own.IntN(4))
		}
		s.isHot, s.isLate = isSharp && own.IntN(2) == 0, d.kind == "evening"
		s.actor = &actor{w, s.id, own}
		w.model.identity(message.Member(s.id, s.key)).isOfRows = true
		w.after(between(own, time.Millisecond, 3*time.Second), "", func() { w.plan.actors.Go(s.live) })
		beside := func(name string, number int, after time.Duration, lives func(*boxStory)) {
			other := *s
			other.actor = &actor{w, s.id + name, rand.New(rand.NewPCG(d.seed, uint64(number+i)))}
			w.after(after, "", func() { w.plan.actors.Go(func() { lives(&other) }) })
		}
		if own.IntN(4) == 0 {
			s.isFar = !s.isHot && own.IntN(2) == 0
			beside("c", 200, time.Duration(own.Int64N(int64(8*time.Second))), (*boxStory).meddle)
		}
		if s.isHot || own.IntN(4) == 0 { // Two write about one identity.
			beside("b", 100, between(own, time.Millisecond, 3*time.Second), (*boxStory).live)
		}
		if d.kind == "lost shard" {
			beside("d", 300, 6*time.Second+between(own, time.Millisecond, 2*time.Second), (*boxStory).regret)
		}
	}
}

// live is what becomes of it.
func (s *boxStory) live() {
	n, pause := 1+s.random.IntN(4), 20*time.Second
	if s.isHot || s.isLate {
		n, pause = 2*n, 3*time.Second
	}
	for i := range n {
		switch {
		case i > 0 && s.isLate: // Something is under way all the time.
			s.rest(300*time.Millisecond + time.Duration(s.random.Int64N(int64(2*time.Second))))
		case i > 0:
			s.rest(between(s.random, time.Millisecond, pause))
		}
		if s.w.isOver {
			return
		}
		s.transact(i == 0)
	}
}

// meddle has a client do something about the identity in Redis, of which no row knows.
func (s *boxStory) meddle() {
	ref := delay.Ref{ID: s.id, Key: s.key}
	for range 1 + s.random.IntN(3) {
		ctx, cancel := s.call()
		switch s.random.IntN(4) {
		case 0, 1:
			s.in("ends", func() {
				who := s.w.model.identity(message.Member(s.id, s.key))
				who.isMet = true
				for _, l := range who.lives {
					l.ends, l.isFixed = append(l.ends, "cancel"), false
				}
			})
			s.answered("cancel beside rows", s.p.clients[delay.Reject].Cancel(ctx, ref))
		default:
			m, l := s.message(s.id, s.key)
			when, promised := s.when()
			s.in("is beside rows", func() { l.promise, l.ask, l.isLoose, l.isFixed = promised, nil, true, false })
			_, err := s.p.clients[delay.Reject].Schedule(ctx, m, when)
			s.answered("schedule beside rows", err)
		}
		cancel()
		if s.rest(between(s.random, time.Millisecond, 10*time.Second)); s.w.isOver {
			return
		}
	}
}

// regret has it cancelled.
func (s *boxStory) regret() {
	s.onlyEnds = true
	s.transact(false)
}

// transact does something about the identity in a transaction, and commits it or not.
func (s *boxStory) transact(isFirst bool) {
	limit := 60 * time.Second
	if s.chance(5) {
		limit = between(s.random, 5*time.Millisecond, 5*time.Second)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	tx, err := s.p.db.BeginTx(ctx, nil)
	if s.answered("begin", err); err != nil {
		return
	}
	var lives []*life
	var tracked *sdk.Tracked
	var through sdk.Tx = tx
	for i := range 1 + s.random.IntN(2) {
		var l *life
		if isFirst && i == 0 || !s.isLate && !s.onlyEnds && (s.chance(4) || s.isHot && s.chance(3)) {
			if tracked == nil && s.chance(2) {
				tracked = s.p.boxes[delay.Reject].Track(tx)
				through = tracked
			}
			l, err = s.schedule(ctx, through)
			lives = append(lives, l)
		} else {
			err = s.operate(ctx, through)
		}
		if err != nil && !errors.Is(err, delay.ErrDuplicate) {
			break
		}
		err = nil
		if s.chance(3) {
			s.rest(between(s.random, time.Millisecond, 3*time.Second))
		}
	}
	never := func() {
		s.in("never", func() {
			for _, l := range lives {
				l.isNever = true
			}
		})
	}
	if err != nil || s.chance(6) {
		_ = tx.Rollback()
		s.answered("roll back", err)
		never()
		return
	}
	err = tx.Commit()
	s.answered("commit", err)
	switch {
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sql.ErrTxDone): // It was not sent.
		never()
	case err == nil && tracked != nil && !s.chance(5):
		ctx, cancel := s.call()
		defer cancel()
		s.answered("push", tracked.Push(ctx))
	}
}

// when is when a message is to be due.
func (s *boxStory) when() (delay.When, promise) {
	if s.isLate && s.w.now() < s.w.plan.morning() {
		d := between(s.random, 100*time.Millisecond, 10*time.Second)
		if s.chance(2) {
			d = 2*d + s.w.plan.morning() - s.w.now()
		}
		return delay.After(d), promise{isDelay: true, delay: d}
	}
	if s.isFar {
		d := between(s.random, 20*time.Second, 90*time.Second)
		return delay.After(d), promise{isDelay: true, delay: d}
	}
	if s.isHot && !s.chance(8) {
		d := between(s.random, time.Millisecond, 3*time.Second)
		return delay.After(d), promise{isDelay: true, delay: d}
	}
	return s.actor.when()
}

// schedule writes another message of the identity.
func (s *boxStory) schedule(ctx context.Context, tx sdk.Tx) (*life, error) {
	m, l := s.message(s.id, s.key)
	when, _ := s.when()
	conflict := []delay.Conflict{delay.Reject, delay.Reject, delay.Keep, delay.Replace}[s.random.IntN(4)]
	s.in("writes", func() { l.isRow, l.ask = true, nil })
	var status delay.Status
	var err error
	if s.chance(2) {
		_, err = s.p.boxes[conflict].Schedule(ctx, tx, queueName, m, when)
	} else {
		var results []delay.Result
		results, err = s.p.boxes[conflict].ScheduleBatch(ctx, tx, queueName, []delay.Request{{Message: m, When: when}})
		status = results[0].Status
	}
	s.answered("write "+l.body, err)
	if err != nil || status == delay.Existing {
		s.in("is not written", func() { l.isNever = l.row == 0 })
	}
	return l, err
}

// operate writes a cancel or reschedule.
func (s *boxStory) operate(ctx context.Context, tx sdk.Tx) (err error) {
	ref, box := delay.Ref{ID: s.id, Key: s.key}, s.p.boxes[delay.Reject]
	what := s.random.IntN(5)
	if s.onlyEnds {
		what = 0
	}
	switch what {
	case 0, 1:
		err = box.Cancel(ctx, tx, queueName, ref)
		s.answered("write cancel", err)
	case 2, 3:
		when, _ := s.when()
		err = box.Reschedule(ctx, tx, queueName, ref, when)
		s.answered("write reschedule", err)
	default:
		if reader, ok := tx.(*sql.Tx); ok {
			_, err = box.Get(ctx, reader, queueName, ref)
			if s.answered("get row", err); errors.Is(err, delay.ErrNotFound) {
				err = nil
			}
		}
	}
	return err
}

// committed is told what a commit has made of rows.
func (m *model) committed(changes []change) {
	for _, c := range changes {
		was := m.rows[c.row.number]
		if c.isGone {
			m.w.tell(fmt.Sprintf("  row %d goes", c.row.number))
			if delete(m.rows, c.row.number); was != nil && was.op == 0 && was.status <= 1 { // Discarded when its message was published.
				m.rowEnds(*was, 2)
			}
			continue
		}
		row := c.row
		row.came = m.w.now()
		if was != nil {
			row.came = was.came
		}
		m.rows[row.number] = &row
		m.w.tell(fmt.Sprintf("  row %d: op %d of %s/%s, status %d, token %s, due %d, target %d, maybe %v, %q", row.number, row.op, row.key, row.id, row.status, row.token,
			row.dueMs, row.target, row.maybe, row.reason))
		switch {
		case row.op == 0 || row.op == 3:
			m.messageRow(was, row)
		case was == nil:
			m.namesItsRow(row, c.age)
			m.asksFor(row)
		default:
			m.operationRow(*was, row)
		}
	}
}

// rolledBack is told what was written in a transaction that is rolled back.
func (m *model) rolledBack(writes []write) {
	for _, w := range writes {
		for _, a := range w.args {
			if text, ok := a.Value.(string); ok && len(text) == bodyLength && strings.HasPrefix(text, "#") {
				if l := m.byBody[text]; l != nil {
					if l.isNever = true; l.cameAt >= 0 || len(l.copies) > 0 {
						m.w.fail("I12: %s was rolled back, and Redis or the broker has it", l)
					}
				}
			}
		}
	}
}

// messageRow looks at the row of a message.
func (m *model) messageRow(was *simRow, row simRow) {
	l := m.byBody[row.body]
	if l == nil {
		m.w.fail("I12: row %d has the body %q", row.number, row.body)
		return
	}
	due := time.UnixMilli(row.dueMs)
	if was == nil {
		if l.isNever || l.row != 0 {
			m.w.fail("I12: row %d of %s is committed, and its caller was told otherwise", row.number, l)
		}
		l.row, l.accepted, l.wants = row.number, m.w.now(), []time.Time{due}
		m.ofRow[row.number] = l
		m.asksFor(row)
		for _, number := range sortedNumbers(m.rows) { // What was committed before may be about it.
			// A replace takes the place of whichever lives, however late that was scheduled.
			if r := m.rows[number]; (number > row.number && r.op > 0 || r.op == 3) && number != row.number && r.key == row.key && r.id == row.id {
				l.asked(*r)
			}
		}
		return
	}
	if was.dueMs != row.dueMs && !l.isWanted(due) {
		m.w.fail("I12: row %d of %s is moved to %d, which nobody had asked for", row.number, l, row.dueMs)
	}
	if was.status > 1 && row.status != was.status {
		m.w.fail("I12: row %d of %s had ended as %d, and is %d", row.number, l, was.status, row.status)
	}
	switch {
	case was.status == row.status:
	case row.status == 1 && l.cameAt < 0:
		m.w.fail("I12: row %d of %s says that Redis has it, and it was never there", row.number, l)
	case row.status > 1:
		m.rowEnds(row, row.status)
	}
}

// rowEnds looks at the end of a message, as its row tells it.
func (m *model) rowEnds(row simRow, status int64) {
	l := m.ofRow[row.number]
	l.rowEndedAt = m.w.now()
	switch status {
	case 2:
		if !l.hasCopy() && !l.isLoose {
			m.w.fail("I11: row %d says that %s was published, and the broker has not stored it", row.number, l)
		}
	case 3:
		if len(l.ends) == 0 && !l.mayBeLate {
			m.w.fail("I4: row %d says that %s was cancelled, which nobody had asked for", row.number, l)
		}
		m.cancelledRow(l, row)
	case 6:
		if row.reason != "another message of that id was scheduled first" {
			m.w.fail("I1: row %d of %s was refused: %s", row.number, l, row.reason)
		}
		l.rowEnd = cmpOr(l.rowEnd, "refused")
	default:
		m.w.fail("I12: row %d of %s has the status %d", row.number, l, status)
	}
}

// compares is how old what relays know of the difference of the clocks may be: they compare them each 15 seconds, if they can.
const compares = time.Minute

// cancelledRow looks at what a row says of a cancel that was in time.
func (m *model) cancelledRow(l *life, row simRow) {
	if l.isLoose && !l.isLost || row.reason != "" || row.maybe || m.was(l.began-compares, "clock", "database clock") {
		l.rowEnd = cmpOr(l.rowEnd, "perhaps cancelled")
		return
	}
	if len(l.copies) > 0 && l.hasCopy() && !l.mayBeLate {
		m.w.fail("I11: row %d says that %s was cancelled in time, and it was published at %s", row.number, l, l.firstCopy())
	}
	if !l.mayBeLate { // A failover may have taken back what an operation has left before the message came.
		l.rowEnd, l.isDenied = "cancelled", !l.isLost && !m.was(l.began, "restore")
	}
}

// namesItsRow looks whether a cancel or reschedule that is committed says which message it is about, where one was there all the time.
func (m *model) namesItsRow(row simRow, age time.Duration) {
	for _, l := range m.ofIdentity(row) {
		if r := m.rows[l.row]; r != nil && r.live && row.target == 0 && l.accepted+age+10*time.Second < m.w.now() && !m.was(l.accepted-time.Minute, "database clock") {
			m.w.fail("§10: row %d (op %d) is about no message, and row %d was there", row.number, row.op, r.number)
		}
	}
}

// operationRow looks at the row of a cancel or reschedule that has changed.
func (m *model) operationRow(was, row simRow) {
	l := m.ofRow[row.target]
	if was.dueMs != row.dueMs || was.revision != row.revision {
		m.asksFor(row)
		return
	}
	switch {
	case l == nil || was.status == row.status || l.isLoose:
	case strings.HasPrefix(row.reason, "it may have been published") && m.wasNeverOut(l) && !m.isFollowed(row):
		m.w.fail("I11: row %d says of %s that it may have been published, and it was never claimed", row.number, l)
	case row.reason != "":
	case row.number < l.revision && (row.status == 1 || row.status == 3 && (l.rowEndedAt == 0 || l.rowEndedAt == m.w.now())):
		// A cancel of what was cancelled before is done at once.
		m.w.fail("I11: row %d about %s says done, and the later row %d had said so before", row.number, l, l.revision)
	case row.op == 1 && row.status == 3:
		m.cancelledRow(l, row)
	case row.op == 2 && row.status == 1 && l.rowEnd == "":
		if l.revision = row.number; l.wasOutAs[row.token] && !m.was(l.began, "clock", "database clock") {
			m.w.fail("I11: row %d says that %s was rescheduled in time, and a copy was out", row.number, l)
		}
		if at := m.rows[row.target]; at != nil && at.token == row.token && !l.isMoved {
			m.lastDue(l, row)
		}
	case row.status == 4:
		if l.claimedAt < 0 && !l.hasCopy() && l.rowEnd == "" {
			m.w.fail("I11: row %d says that it was too late for %s, which was never claimed", row.number, l)
		}
	case row.status == 0:
		m.w.fail("I12: row %d about %s is pending again", row.number, l)
	}
}

// lastDue notes that a reschedule is in force: earlier due times count no more, but those that
// later operations ask for.
func (m *model) lastDue(l *life, row simRow) {
	dues := []time.Time{time.UnixMilli(row.dueMs)}
	for _, number := range sortedNumbers(m.rows) {
		if r := m.rows[number]; number > row.number && r.op == 2 && r.status == 0 && r.key == row.key && r.id == row.id {
			dues = append(dues, time.UnixMilli(r.dueMs), time.UnixMilli(max(r.revision, r.dueMs)))
		}
	}
	if !l.isOfJob {
		l.wants = dues
	}
}

// isFollowed reports whether a later operation is about the same message. It gives that another token, and after a minute without an answer
// nobody can tell any more what has become of the one before.
func (m *model) isFollowed(row simRow) bool {
	for number, r := range m.rows {
		if r.target == row.target && number > row.number {
			return true
		}
	}
	return false
}

// wasNeverOut reports whether Redis has had a message all the time since its row was put, and has it, and nobody has claimed it.
func (m *model) wasNeverOut(l *life) bool {
	return l.claimedAt < 0 && l.cameAt >= 0 && l.created == 1 && l.removed == "" && !l.isMarked && !m.identity(l.member).isMet && !m.was(l.began, "clock", "database clock")
}

func (l *life) isWanted(due time.Time) bool { return slices.ContainsFunc(l.wants, due.Equal) }

// rowCame judges that a row's message is in Redis that was not.
func (m *model) rowCame(p *place, before, now facts, script string) {
	l, at, due := now.life, m.w.now(), time.UnixMilli(now.score)
	switch {
	case !l.isRow:
		m.w.fail("I12: a %s brings %s, which is no row's", script, l)
	case l.row == 0 || l.isNever:
		m.w.fail("I12: a %s brings %s, whose row was never committed", script, l)
	case !l.isWanted(due):
		m.w.fail("I2: a %s brings %s, due at %s, which nobody had asked for", script, l, m.stamp(due))
	case script == "put" && l.removed != "" && !l.isDead && !l.isLoose && !m.was(l.began, "clock"):
		m.w.fail("I3: a put brings %s back, which a %s has ended at %s", l, l.removed, l.removedAt)
	case len(l.takenBy) > 0 && m.w.redis.server.by != nil && strings.HasPrefix(m.w.redis.server.by.name, "producer"):
		m.w.fail("I12: a push brings %s, about which its transaction has done something else", l)
	case m.isTakenBack(l, m.tokenAt(p)):
		m.w.fail("I12: a %s brings %s, and what its transaction has done about it is pending", script, l)
	}
	attempts, _ := m.w.redis.server.field(p.base+"attempts", p.of.member)
	fields := strings.Fields(attempts)
	l.isMarked = len(fields) > 2 && fields[2] != "0"
	if l.isLost && l.hasCopy() && !l.isMarked && !m.was(l.began-compares, "clock", "database clock") {
		m.w.fail("I11: a %s brings %s back, of which a copy is out, and does not mark it", script, l)
	}
	l.took = before.life
	l.first = m.w.redis.clock().Truncate(time.Microsecond)
	if l.created++; l.created > 1 {
		l.isAgain, l.isFixed = true, false
	}
	if l.cameAt < 0 {
		l.cameAt = at
	}
	l.removed, l.tag = "", p.tag
	l.isDueAt(due, at)
}

// rowLeft judges that a message of an identity that has rows is not in Redis any more.
func (m *model) rowLeft(l *life, script, by string) {
	isProducer := strings.HasPrefix(by, "producer")
	if isProducer && script == "cancel" && m.sweep(l, by) || !isProducer && m.isOfAJob(l, job.Cancel, job.Purge) {
		l.ends, l.isFixed = append(l.ends, script), false
	}
	if script == "cancel" {
		m.learns(l)
	}
	row := m.rows[l.row]
	isPublished := script == "remove" && row != nil && row.status == 2 // A copy stays where the claim ended before the settle.
	if len(l.ends) == 0 && l.isRow && !isPublished && !l.isLoose && !m.clockWasSet(m.w.now()-2*time.Minute) {
		m.w.fail("I4: a %q of %s removed %s, which nobody had asked for", script, by, l)
	}
}

// learns looks whether the row of a message that was cancelled in Redis is told, where nothing is the matter.
func (m *model) learns(l *life) {
	began, wasNight := m.w.now(), m.w.isNight
	m.w.after(2*patienceOfRows, "", func() {
		switch r := m.rows[l.row]; {
		case r == nil || r.status != 1 || l.removed != "cancel" || m.w.isOver:
		case wasNight || m.w.isNight || m.was(began, delayRows...) || m.hasOperations(r) || m.w.database.server.locks[rowLock(r.number)] != nil:
			m.learns(l)
		default:
			m.w.fail("I12: row %d has not been told since %s that its message was cancelled", r.number, began)
		}
	})
}

// delayRows are what may have bridges not tell a row for a while.
var delayRows = []string{
	"redis down", "redis flaky", "slow redis", "clock", "drain", "crash", "two holders", "stall", "takeover", "reshard", "restore", "wipe", "lost shard", "no replicas",
	"database away", "database flaky", "slow database", "database clock",
}

// rowMoved judges that a message of an identity that has rows has another due time.
func (m *model) rowMoved(p *place, l *life, due time.Time, at time.Duration, by string) {
	if l.hasCopy() {
		l.wasOutAs[m.tokenAt(p)] = true
	}
	if m.isOfAJob(l, job.Reschedule, job.Redrive) {
		l.wants, l.isOfJob = append(l.wants, due), true
	}
	if l.isRow && !l.isWanted(due) && !m.clockWasSet(at-2*time.Minute) {
		m.w.fail("I11: %s moves %s to %s, which nobody had asked for", by, l, m.stamp(due))
	}
	l.isDueAt(due, at)
}

// asksFor notes what a row that is committed asks for.
func (m *model) asksFor(row simRow) {
	for _, other := range m.ofIdentity(row) {
		if other.accepted == m.w.now() {
			other.takenBy = append(other.takenBy, row.number)
		}
		other.asked(row)
	}
}

// asked notes what another row of the identity asks for.
func (l *life) asked(row simRow) {
	if row.target != 0 && row.target != l.row || row.op != 3 && row.number < l.revision {
		return // It is about another, or too late.
	}
	switch row.op {
	case 1:
		l.ends, l.isFixed = append(l.ends, "cancel"), false
	case 2:
		l.wants, l.isFixed = append(l.wants, time.UnixMilli(row.dueMs)), false
		if row.revision > 0 {
			l.wants = append(l.wants, time.UnixMilli(row.revision))
		}
	case 3:
		l.ends, l.isFixed = append(l.ends, "replace"), false
	}
}

// ofIdentity are the lives of the rows of an identity that came before a row.
func (m *model) ofIdentity(row simRow) (lives []*life) {
	for _, l := range m.lives {
		if l.row != 0 && l.id == row.id && l.key == row.key && l.row != row.number {
			lives = append(lives, l)
		}
	}
	return lives
}

func sortedNumbers(rows map[int64]*simRow) []int64 {
	numbers := make([]int64, 0, len(rows))
	for number := range rows {
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	return numbers
}

// openRows are those of which something is to come: pending ones that are due, and those whose message
// Redis has or had, but for dead letters.
func (m *model) openRows() (open []*simRow) {
	for _, number := range sortedNumbers(m.rows) {
		r := m.rows[number]
		if (r.status == 0 || r.op == 0 && r.status == 1 && !m.ofRow[number].isDead) && !m.isBehindDead(*r) {
			open = append(open, r)
		}
	}
	return open
}

// isBehindDead reports whether a dead letter has the identity that is no row's, or whose row says that it was published, or that a failover has brought back:
// the row waits for somebody to see to it.
func (m *model) isBehindDead(r simRow) bool {
	return m.isBehind(r, dead)
}

// isBehind reports whether another message of its identity, which is no row's, or a dead letter that a failover has brought back, is in its way.
// A dead letter may outlive its row, too: whoever had published it was told too late that it no longer had the claim, and tells the row.
func (m *model) isBehind(r simRow, states ...state) bool {
	return slices.ContainsFunc(m.identity(message.Member(r.id, r.key)).places, func(p *place) bool {
		l := p.now.life
		if l == nil || !slices.Contains(states, p.now.state) {
			return false
		}
		isPublished := l.rowEndedAt > 0 && l.rowEnd == "" // As its row tells it.
		return !l.isRow || p.now.state == dead && l.row != r.number && (l.isLoose || isPublished)
	})
}

// wasBehind reports whether such a message has gone so late that no relay has tried the row again, which it does each 5 seconds.
func (m *model) wasBehind(r simRow) bool {
	for _, l := range m.lives {
		if l.id == r.id && l.key == r.key && !l.isRow && l.removed != "" && m.w.now()-l.removedAt < 10*time.Second {
			return true
		}
	}
	return false
}

// ledgers is how many entries they have.
func (m *model) ledgers() (n int) {
	for _, shard := range m.shards() {
		n += len(m.w.redis.server.dump(queueName, shard).Settled)
	}
	return n
}

// isAdopted reports whether the rows belong to the Redis that there is, so that relays take them.
func (m *model) isAdopted() bool {
	lives, err := m.w.database.server.plain("SELECT life FROM delay_outbox_lives")
	if err != nil || len(lives.rows) != 1 {
		return false
	}
	return lives.rows[0][0] == layout.LifeOf(m.w.redis.server.dump(queueName, 0).Meta["epoch"])
}

// overdueRows looks for rows that should have been taken.
func (m *model) overdueRows(patience time.Duration) {
	if !m.w.plan.box.isThere || !m.isAdopted() {
		return // Clocks that were set keep bridges from telling that Redis was emptied: an operator adopts the rows.
	}
	now := m.w.redis.clock().Add(-patience).UnixMilli()
	for _, r := range m.openRows() {
		if r.status == 0 && r.came < m.w.now()-patience && !m.isBehind(*r, waiting, inFlight, dead) && !m.wasBehind(*r) && (r.op != 0 || r.dueMs < now) {
			m.w.fail("I7: row %d (op %d of %s/%s, due %d) is pending", r.number, r.op, r.key, r.id, r.dueMs)
		}
	}
}

// untold looks for rows that have not been told for a while that their message was published; what
// has happened before all trouble was over does not count.
func (m *model) untold(since time.Duration) {
	if m.w.now() < since+hangs+patienceOfRows {
		return // Somebody may wait for the answer of a commit that was lost before.
	}
	for _, r := range m.openRows() {
		l := m.ofRow[r.number]
		if r.op != 0 || r.status != 1 || l.removed != "settle" || !l.hasCopy() || l.isLoose || l.removedAt < since || m.w.database.server.locks[rowLock(r.number)] != nil {
			continue
		}
		if late := m.w.now() - l.removedAt; late > patienceOfRows {
			m.w.fail("I12: row %d has not been told for %s that %s was published", r.number, late, l)
		}
	}
}

// ackedLate looks whether rows are told what the broker has acknowledged too late for Redis, by the bridge that knows it.
func (m *model) ackedLate(b *bridge, rows []store.RowFate) {
	began := m.w.now()
	m.w.after(lateRows, "", func() {
		if b.isLeaving || b.h.dead() || b.h.stalled > began || m.was(began, "database away", "database flaky", "slow database", "restore", "wipe", "lost shard") ||
			b.h.unheard > began { // Its pass may wait for an answer that was lost before.
			return
		}
		if m.was(began, "redis down", "redis flaky", "slow redis", "stall") { // The settler's pass waits for Redis, or a row's lock was another's.
			m.ackedLate(b, rows)
			return
		}
		for _, r := range m.rows {
			isOf := func(row store.RowFate) bool { return row.Token == r.token }
			if r.live && slices.ContainsFunc(rows, isOf) && m.w.database.server.locks[rowLock(r.number)] == nil && !m.hasOperations(r) {
				m.w.fail("I12: %s knows since %s that the message of row %d was published, and its status is %d", b.h.name, began, r.number, r.status)
			}
		}
	})
}

// tokenAt is the token in force of what Redis has there.
func (m *model) tokenAt(p *place) string {
	stored, _ := m.w.redis.server.field(p.base+"msg", p.of.member)
	return stored[min(len(stored), 14):min(len(stored), 30)]
}

// isTakenBack reports whether an operation is pending that was committed with the row of a message. One that was applied, and is
// not committed, has given it another token.
func (m *model) isTakenBack(l *life, token string) bool {
	row := m.rows[l.row]
	return row != nil && row.token == token && slices.ContainsFunc(l.takenBy, func(number int64) bool {
		r := m.rows[number]
		return r != nil && r.op > 0 && r.status == 0
	})
}

// lateRows is how long a bridge takes to tell a row what Redis cannot.
const lateRows = 3 * time.Second

// hasOperations reports whether something is pending about the message of a row.
func (m *model) hasOperations(r *simRow) bool {
	for _, other := range m.rows {
		if other.op > 0 && other.status == 0 && other.key == r.key && other.id == r.id {
			return true
		}
	}
	return false
}

// patienceOfRows is how long it may take until a row is told: a ledger is read a second after it is signalled, and the auditor finds out only
// half a minute after it was due.
const patienceOfRows = 20 * time.Second

// checkRows looks at what has come of all rows.
func (m *model) checkRows() {
	for _, r := range m.openRows() {
		m.w.fail("I12: row %d (op %d of %s/%s) has the status %d at the end", r.number, r.op, r.key, r.id, r.status)
	}
	if n := m.ledgers(); n > 0 {
		m.w.fail("I12: %d entries of ledgers are left", n)
	}
	for _, l := range m.lives {
		if r := m.rows[l.row]; r != nil && r.status < 2 && m.isBehindDead(*r) {
			continue // A comparison puts back what Redis has lost when the dead letter has gone.
		}
		if l.row != 0 && !l.hasCopy() && !l.isDead && l.rowEnd == "" && !l.mayBeLate && len(l.ends) == 0 {
			m.w.fail("I1: %s of row %d was lost", l, l.row)
		}
	}
}

// loseShard takes all keys of a shard away.
func (w *world) loseShard(shard int) {
	tag := fmt.Sprintf("{%s:%d}", queueName, shard)
	w.tell("lost: " + tag)
	w.replace(tag, newRedisServer(w.redis.clock))
	w.model.restored(tag, -1)
}

// adopt has the rows belong to Redis, as an operator does where clocks that were set keep the bridges from telling that Redis was
// emptied; else they find out by themselves.
func (a *actor) adopt() {
	if !a.w.plan.box.isThere {
		return
	}
	a.rest(outbox.Lapse + 15*time.Second)
	o := a.w.plan.operator
	db, err := table.Open(table.Config{Dialect: schema.MySQL, Source: sqldb.Source{Connector: connector{o.h}}, Connections: 1})
	if err != nil {
		a.w.fail("no database: %s", err)
		return
	}
	defer func() { _ = db.Close() }()
	a.insist("adopt", func(ctx context.Context) error {
		redis, err := outbox.NewStore(o.queue.Rows()).Pin(ctx)
		if err != nil {
			return err
		}
		life, err := db.Lives().Of(ctx, queueName)
		if err != nil || life.Name == "" || life.Name == redis.Life() {
			return err
		}
		if a.w.model.events["clock"] == nil && a.w.model.events["database clock"] == nil {
			a.w.fail("I7: the rows belong to the life %q, and Redis has %q", life.Name, redis.Life())
		}
		_, err = db.Lives().Replace(ctx, queueName, life.Name, redis.Life())
		return err
	})
}

// audit has a bridge's auditor compare all rows, as if something had been lost, or as an operator has it done.
func (a *actor) audit(b *bridge) {
	if a.chance(2) {
		b.box.auditor.Suspect(queueName)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	counts, err := b.box.auditor.Audit(ctx, queueName, true, false, nil)
	a.answered(fmt.Sprintf("audit %+v", counts), err)
}
