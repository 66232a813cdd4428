package relay

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// Relay brings the rows of one database into Redis. Any number of relays may
// work on one database: each skips the rows that another one has locked.
//
// [Relay.Run] owns its goroutines: one per lane, one for upkeep, one that checks to which Redis the
// rows belong, one that screens rows beyond the horizon, and one that listens if Notify is set.
type Relay struct {
	config   Config
	db       *table.Database
	queues   map[string]*outbox.Queue
	names    []string
	log      *slog.Logger
	observer Observer

	outages   outages
	refusals  *refusals
	blocked   *blockedRows
	lookout   lookout
	others    atomic.Pointer[error]         // why rows are another Redis'
	disowned  chan struct{}                 // a batch has found that its rows belong to another Redis
	skew      atomic.Pointer[time.Duration] // how far the database's clock is ahead, nil before it was measured
	wake      chan struct{}
	ready     chan struct{} // closed once the database was found fit
	readyOnce sync.Once
	// purgedMs is the end time up to which finished operations were purged. It belongs to the upkeep.
	purgedMs int64
}

// New returns a relay; [Relay.Run] runs it.
func New(config Config) (*Relay, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	log := config.Logger.With("component", "outbox")
	r := &Relay{
		config: config, db: config.Database, queues: map[string]*outbox.Queue{}, log: log, observer: config.Observer,
		refusals: &refusals{log: log}, blocked: newBlocked(log), wake: make(chan struct{}, config.Lanes), ready: make(chan struct{}), disowned: make(chan struct{}, 1),
	}
	for i := range config.Queues {
		q := &config.Queues[i]
		r.queues[q.Name] = q
		r.names = append(r.names, q.Name)
	}
	slices.Sort(r.names)
	r.outages = newOutages(log, r.names)
	return r, nil
}

// Ready is closed when the database has been reached and found fit.
func (r *Relay) Ready() <-chan struct{} { return r.ready }

var errNotReached = errors.New("has not answered yet")

// State returns nil if the last call to the database succeeded. Otherwise it says why
// not, that the database is unfit, or that the rows of a queue belong to another Redis.
func (r *Relay) State() error {
	if err := r.outages.database.Last(); err != nil {
		return err
	}
	select {
	case <-r.ready:
		if others := r.others.Load(); others != nil {
			return *others
		}
		return nil
	default:
		return errNotReached
	}
}

// Run works until ctx ends, through every outage of the database and of Redis;
// then it finishes what it has begun, which takes a few seconds at most, and
// returns nil. Its errors are those of a database that is unfit: of another
// version, or without the tables, see [table.IsUnfit]; then it may be called again.
func (r *Relay) Run(ctx context.Context) error {
	wasUnfit := table.IsUnfit(r.State())
	if err := r.prepare(ctx); err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // Asked to stop before it began.
		}
		return err
	}
	r.readyOnce.Do(func() { close(r.ready) })
	level := slog.LevelInfo
	if wasUnfit { // It was logged as an error, so its end must show even if INFO is hidden.
		level = slog.LevelWarn
	}
	r.log.Log(ctx, level, "outbox relay started: the database is fit", "event", "outbox_fit", "table", r.db.Table(), "queues", len(r.names))
	_ = r.watch(ctx) // What fails is tried again, see upkeep.
	lives := newLives(r)
	lives.step(ctx)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.upkeep(ctx) })
	group.Go(func() error { return lives.run(ctx) })
	group.Go(func() error { return (&screen{Relay: r}).run(ctx) })
	for i := range r.config.Lanes {
		group.Go(func() error { return r.driver(i).run(ctx) })
	}
	if r.config.Notify {
		group.Go(func() error { return r.listen(ctx) })
	}
	return group.Wait()
}

// prepare waits for the database and checks it.
func (r *Relay) prepare(ctx context.Context) error {
	pause := outbox.NewBackoff()
	for {
		err := r.db.Check(ctx)
		if table.IsUnfit(err) {
			r.outages.database.Mark(err)
			return err
		}
		if r.outages.database.Observe(ctx, err); err == nil {
			return nil
		}
		if !wait.Sleep(ctx, pause.Next()) {
			return ctx.Err()
		}
	}
}

// Wake makes the relay look at the table at once; as many wake-ups as there are lanes may wait.
func (r *Relay) Wake() { wait.Wake(r.wake) }
