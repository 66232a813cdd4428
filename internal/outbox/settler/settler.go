package settler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

const (
	// settleBatch is how many rows one transaction settles.
	settleBatch = 1000
	// settlePause lets settlements of about the same time gather.
	settlePause = 200 * time.Millisecond
	// settleEvery is the interval between passes over all held shards, signalled or not.
	settleEvery = 30 * time.Second
	// busyPause is the time until rows that a relay works on are tried again.
	busyPause = time.Second
	// staleLimit is how many late acknowledgements are held while the database is away.
	staleLimit = 100_000
	// ledgerTimeout limits one call of Redis.
	ledgerTimeout = 5 * time.Second
)

// Ledger is what the settler needs of one queue in Redis. The methods are those
// of [store.Rows], and documented there.
type Ledger interface {
	FatePage(ctx context.Context, shard int, cursor uint64, most int) (rows []store.RowFate, next uint64, err error)
	ForgetFates(ctx context.Context, shard int, rows []store.RowFate) error
}

// Queue is a queue whose ledger is drained.
type Queue struct {
	Name  string
	Store Ledger
	// Held are the shards that this instance holds now. It is called from the
	// settler's goroutine and must not block.
	Held func() []int
}

// Database has rows that must record how their messages ended.
type Database struct {
	*table.Database
	// OnSettled, if not nil, is called with the number of settled rows.
	OnSettled func(rows int)
}

// Config describes a [Settler].
type Config struct {
	// Databases are all that may have rows of the queues: an entry that none of them knows is
	// forgotten.
	Databases []Database
	Queues    []Queue
	// Logger defaults to none.
	Logger *slog.Logger
}

// Settler records in rows how their messages ended: it drains the ledgers that
// settling writes in Redis, and takes acknowledgements that came too late for Redis.
// An entry leaves the ledger when its row records it, or when no database has such a
// row. While a database is away, entries stay. It is safe for concurrent use.
type Settler struct {
	config          Config
	log             *slog.Logger
	database, redis *outbox.Outage
	wake            chan struct{}
	working         chan struct{} // of 1: held by the goroutine that drains

	mu      sync.Mutex
	queues  map[string]*Queue
	backlog backlog
}

// errRedis marks a failure of Redis, not of a database.
var errRedis = errors.New("redis")

// New returns a settler; [Settler.Run] runs it.
func New(config Config) (*Settler, error) {
	if len(config.Databases) == 0 || len(config.Queues) == 0 {
		return nil, errors.New("a settler needs a database and a queue")
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	log := config.Logger.With("component", "outbox")
	s := &Settler{
		config: config, queues: map[string]*Queue{}, log: log,
		database: &outbox.Outage{Log: log, What: "settle_database", Level: slog.LevelDebug},
		redis:    &outbox.Outage{Log: log, What: "settle_redis", Level: slog.LevelDebug},
		wake:     make(chan struct{}, 1), working: make(chan struct{}, 1), backlog: newBacklog(),
	}
	for _, q := range config.Queues {
		if q.Held == nil || q.Store == nil {
			return nil, fmt.Errorf("queue %q: a settler needs its store and its shards", q.Name)
		}
		s.Add(q)
	}
	return s, nil
}

// Add adds a queue, or replaces the one of its name.
func (s *Settler) Add(q Queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queues[q.Name] = &q
}

// Remove leaves the ledgers of a queue to other instances, or to this one when the queue comes back: what they have
// stays in Redis. Flush before it. Late acknowledgements are settled all the same: they are for the database alone.
func (s *Settler) Remove(queue string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.queues, queue)
}

// ledgerOf is nil for a queue that was removed.
func (s *Settler) ledgerOf(queue string) Ledger {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[queue]; q != nil {
		return q.Store
	}
	return nil
}

// Notify records that the shard's ledger has new entries. It does not block.
func (s *Settler) Notify(queue string, shard int) {
	s.mu.Lock()
	if s.queues[queue] != nil {
		s.backlog.notify(ledgerRef{queue, shard})
	}
	s.mu.Unlock()
	wait.Wake(s.wake)
}

// Acknowledged takes messages that the broker has acknowledged after their
// claim had ended, so that the ledger lacks them. It does not block; if too
// many wait, some are forgotten, and are published again.
func (s *Settler) Acknowledged(queue string, rows []store.RowFate) {
	s.mu.Lock()
	s.backlog.acknowledge(queue, rows)
	s.mu.Unlock()
	wait.Wake(s.wake)
}

// Run settles until ctx ends, through every outage, and returns nil.
// [Settler.Flush] does the rest.
func (s *Settler) Run(ctx context.Context) error {
	for {
		p := s.drain(ctx, false)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // A failure during shutdown tells nothing.
		}
		s.mu.Lock()
		pause, deaf := s.backlog.pause(time.Now(), p)
		s.mu.Unlock()
		if deaf {
			wait.Sleep(ctx, pause)
		} else if wait.SleepOrWake(ctx, pause, s.wake) {
			wait.Sleep(ctx, settlePause)
		}
	}
}

// Flush settles everything known, for all held shards. An error means that something is
// left: a database or Redis is unavailable, rows are being worked on, or ctx has ended.
func (s *Settler) Flush(ctx context.Context) error {
	for {
		p := s.drain(ctx, true)
		if err := p.failure(); err != nil {
			return fmt.Errorf("settle rows: %w", err)
		}
		if !p.busy {
			return nil
		}
		if !wait.Sleep(ctx, settlePause) {
			return fmt.Errorf("settle rows: some are being worked on: %w", ctx.Err())
		}
	}
}

// drain makes a pass over the signalled ledgers, or over all.
func (s *Settler) drain(ctx context.Context, all bool) *pass {
	select {
	case s.working <- struct{}{}:
	case <-ctx.Done():
		return &pass{away: ctx.Err()}
	}
	defer func() { <-s.working }()
	p := s.begin(ctx, all)
	for a := p.next(); a.kind != actionEnd; a = p.next() {
		if ctx.Err() != nil && a.kind != actionForget {
			p.stop(ctx.Err())
			continue
		}
		s.do(ctx, p, a)
	}
	s.mu.Lock()
	s.backlog.end(p)
	s.mu.Unlock()
	switch err := p.failure(); {
	case errors.Is(err, errRedis):
		s.redis.Observe(ctx, err)
	case err != nil:
		s.database.Observe(ctx, err)
	default:
		s.database.Observe(ctx, nil)
		s.redis.Observe(ctx, nil)
	}
	return p
}

func (s *Settler) begin(ctx context.Context, all bool) *pass {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); all || s.backlog.isDue(now) {
		var held []ledgerRef
		for name, q := range s.queues {
			for _, shard := range q.Held() {
				held = append(held, ledgerRef{name, shard})
			}
		}
		s.backlog.sweep(now, held)
	}
	p, dropped := s.backlog.begin(len(s.config.Databases))
	if dropped > 0 {
		s.log.WarnContext(ctx, "outbox forgot late acknowledgements: their messages are published again",
			"event", "outbox_stale_dropped", "messages", dropped)
	}
	return p
}

// do calls a database or Redis. Settled entries are forgotten even if ctx ends.
func (s *Settler) do(ctx context.Context, p *pass, a action) {
	if a.kind == actionOffer {
		p.offered(s.offer(ctx, s.config.Databases[a.database], a.fates))
		return
	}
	ledger := s.ledgerOf(a.ledger.queue)
	if a.kind == actionForget {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, ledgerTimeout)
	defer cancel()
	switch {
	case a.kind == actionRead && ledger == nil: // The queue was removed after it was signalled.
		p.paged(nil, 0, nil)
	case a.kind == actionRead:
		p.paged(ledger.FatePage(ctx, a.ledger.shard, a.cursor, settleBatch))
	case ledger == nil:
		p.forgot(nil) // It is offered again when the queue comes back.
	default:
		p.forgot(ledger.ForgetFates(ctx, a.ledger.shard, a.entries))
	}
}

// offer offers fates to a database.
func (s *Settler) offer(ctx context.Context, d Database, fates []table.Fate) ([]table.FateResult, error) {
	known, err := d.Ended().Settle(ctx, fates)
	if err != nil {
		d.Heed(err)
		return nil, err
	}
	n := 0
	for _, k := range known {
		if k == table.FateSettled {
			n++
		}
	}
	if d.OnSettled != nil && n > 0 {
		d.OnSettled(n)
	}
	return known, nil
}
