package relay

import (
	"context"
	"errors"
	"log/slog"
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
	log      *slog.Logger
	observer Observer
	served   atomic.Pointer[served] // The goroutines of Run see one, from their start to their end.
	changing sync.Mutex
	next     *served       // follows it when those have ended
	changed  chan struct{} // of 1: there is another next

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
		config: config, db: config.Database, log: log, observer: config.Observer, outages: newOutages(log), changed: make(chan struct{}, 1),
		refusals: &refusals{log: log}, blocked: newBlocked(log), wake: make(chan struct{}, config.Lanes), ready: make(chan struct{}), disowned: make(chan struct{}, 1),
	}
	r.next = (&served{}).change(log, nil, config.Queues)
	r.served.Store(r.next)
	return r, nil
}

// Change leaves the rows of some queues alone from now on, and takes those of others, or of new queues of the same names. The
// relay ends the batches that it has begun, and goes on with the others. It does not block. At least one queue must be left.
func (r *Relay) Change(gone []string, come []outbox.Queue) {
	r.changing.Lock()
	defer r.changing.Unlock()
	r.next = r.next.change(r.log, gone, come)
	wait.Wake(r.changed)
}

// follow has the next queues served. Nothing else of Run works meanwhile.
func (r *Relay) follow() {
	r.changing.Lock()
	defer r.changing.Unlock()
	for name := range r.served.Load().queues {
		if r.next.queues[name] == nil {
			r.blocked.forget(name)
		}
	}
	r.served.Store(r.next)
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
	r.follow()
	r.log.Log(ctx, level, "outbox relay started: the database is fit", "event", "outbox_fit", "table", r.db.Table(), "queues", len(r.served.Load().names))
	_ = r.watch(ctx) // What fails is tried again, see upkeep.
	lives := newLives(r)
	lives.step(ctx)
	for {
		if err := r.serve(ctx, lives); err != nil || ctx.Err() != nil {
			return err
		}
		r.follow()
		lives.follow()
		wait.Wake(r.disowned) // New ones are checked at once.
	}
}

// serve relays until ctx ends or other queues are to be served.
func (r *Relay) serve(ctx context.Context, lives *lives) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		select {
		case <-r.changed:
			end()
		case <-ctx.Done():
		}
		return nil
	})
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
