package auditor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

const (
	defaultAuditRate = 1000
	// flushTimeout limits the flush before due messages are put back, graceBefore
	// is how long it waits for pollers that are about to report.
	flushTimeout = 5 * time.Second
	graceBefore  = 500 * time.Millisecond
	// secondLook is how long after a hint all rows are compared once more: a relay may have
	// written a message before Redis lost it, and its row after the first comparison.
	secondLook = 30 * time.Second
)

// Queue is a queue whose rows are compared with Redis.
type Queue struct {
	outbox.Queue
	// Mine, if not nil, reports whether this instance audits the queue; if nil,
	// it does. It must not block.
	Mine func() bool
}

// Config describes an [Auditor].
type Config struct {
	// Databases are the databases with the rows.
	Databases []*table.Database
	// Others may have rows of the same queues: a live message of theirs blocks a row of ours,
	// and stays.
	Others []*table.Database
	Queues []Queue
	// Flush settles everything this bridge knows, as its settler does.
	Flush func(ctx context.Context) error
	// Rate is how many rows a second are compared while nothing is known to be lost,
	// default 1,000.
	Rate int
	// Observe, if not nil, gets the findings of each step. It is called from
	// several goroutines.
	Observe func(Counts)
	// Watch, if not nil, gets at least twice a minute how many rows are overdue (their messages
	// were due half a minute ago, Redis does not have them, and they could not be put back at
	// once), and the longest time since a row was compared. If a round takes longer, it gets the
	// count of the last one.
	Watch func(queue string, overdue int, oldest time.Duration)
	// Unwatch, if not nil, is called repeatedly while another instance audits the queue.
	Unwatch func(queue string)
	// Logger defaults to none.
	Logger *slog.Logger

	// For tests: how long to wait before the second look, for flushing, and between the
	// rounds of overdue rows.
	second, grace, overdue time.Duration
}

// Counts are what an audit has found, in messages.
type Counts struct {
	// Looked counts the rows that say that Redis has their message.
	Looked int64 `json:"looked"`
	// PutBack counts the messages that were missing and were put back.
	PutBack int64 `json:"put_back"`
	// There counts the messages that Redis had.
	There int64 `json:"there"`
	// Settled are rows whose message has ended, as Redis remembered.
	Settled int64 `json:"settled"`
	// Removed are messages in Redis that had ended, as their rows say.
	Removed int64 `json:"removed"`
	// Skipped are rows that another transaction works on, or will.
	Skipped int64 `json:"skipped"`
	// Blocked counts those whose identity another message has.
	Blocked int64 `json:"blocked"`
}

// Each calls f for each of the counts, with its name.
func (c *Counts) Each(f func(result string, count int64)) {
	f("looked", c.Looked)
	f("put_back", c.PutBack)
	f("there", c.There)
	f("settled", c.Settled)
	f("removed", c.Removed)
	f("skipped", c.Skipped)
	f("blocked", c.Blocked)
}

func (c *Counts) add(o Counts) {
	c.Looked += o.Looked
	c.PutBack += o.PutBack
	c.There += o.There
	c.Settled += o.Settled
	c.Removed += o.Removed
	c.Skipped += o.Skipped
	c.Blocked += o.Blocked
}

// Auditor compares the rows that say that Redis has their message with Redis, and puts
// back missing messages under the row's token, whatever was lost: all of Redis, a shard,
// one write, or the database's last commits. Overdue rows come first, then all in turn
// at [Config.Rate]; after [Auditor.Suspect] all at once, those due next first.
//
// It holds no locks on rows. It puts only rows that it read at most [putWithin] ago, and
// whatever has ended a row's message since then has left a tombstone that lives longer. So
// it may run at the same time as everything else, other auditors included. It is safe for
// concurrent use.
type Auditor struct {
	config Config
	log    *slog.Logger
	away   *outbox.Outage
	slots  chan struct{} // of chunksInFlight: chunks that are being worked on

	mu      sync.Mutex
	watches []*watch
	begin   func(w *watch) // runs a watch; nil while none runs
}

// New returns an auditor; [Auditor.Run] runs it.
func New(config Config) (*Auditor, error) {
	if len(config.Databases) == 0 || len(config.Queues) == 0 {
		return nil, errors.New("an auditor needs a database and a queue")
	}
	config.Rate = cmp.Or(config.Rate, defaultAuditRate)
	config.second = cmp.Or(config.second, secondLook)
	config.grace = cmp.Or(config.grace, graceBefore)
	config.overdue = cmp.Or(config.overdue, overdueEvery)
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Flush == nil {
		config.Flush = func(context.Context) error { return nil }
	}
	log := config.Logger.With("component", "outbox")
	a := &Auditor{
		config: config, log: log, away: &outbox.Outage{Log: log, What: "audit", Text: "database or redis (auditing)"},
		slots: make(chan struct{}, chunksInFlight),
	}
	a.Change(nil, config.Queues)
	return a, nil
}

// Change leaves the rows of some queues alone from now on, and compares those of others, or of new queues of the same names. It
// does not block: comparisons of those that are gone may end later.
func (a *Auditor) Change(gone []string, come []Queue) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watches = slices.DeleteFunc(a.watches, func(w *watch) (isGone bool) {
		if isGone = slices.Contains(gone, w.queue.Name); isGone && w.end != nil {
			w.end()
		}
		return isGone
	})
	for i := range come {
		for _, d := range a.config.Databases {
			w := &watch{Auditor: a, db: d, queue: &come[i]}
			if a.watches = append(a.watches, w); a.begin != nil {
				a.begin(w)
			}
		}
	}
}

// watching are the watches of a queue, or of all where the name is empty, in their order.
func (a *Auditor) watching(queue string) (watches []*watch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.watches {
		if queue == "" || w.queue.Name == queue {
			watches = append(watches, w)
		}
	}
	return watches
}

// Suspect says that Redis may have lost messages of the queue, so that all its
// rows are compared at once. It does not block.
func (a *Auditor) Suspect(queue string) {
	for _, w := range a.watching(queue) {
		w.disturb()
	}
}

// Run audits until ctx ends, and returns nil. It begins with all rows, since it does not know
// what happened before.
func (a *Auditor) Run(ctx context.Context) error {
	var working sync.WaitGroup
	a.mu.Lock()
	a.begin = func(w *watch) { w.begin(ctx, &working) }
	for _, w := range a.watches {
		a.begin(w)
	}
	a.mu.Unlock()
	<-ctx.Done()
	a.mu.Lock()
	a.begin = nil
	a.mu.Unlock()
	working.Wait()
	return nil
}

// ErrNoQueue is returned for a queue that the auditor does not have.
var ErrNoQueue = errors.New("no such queue with an outbox")

// Audit compares rows of a queue with Redis, or of all queues where the name is
// empty: the overdue ones, or all; with all also what Redis has with the rows, and
// removes messages that have ended, as their rows say. A dry run only counts.
// progress, if not nil, is called with the counts so far, from one goroutine at a time.
// While something is away it waits, until ctx ends. Rows that are skipped, because
// operations are pending, are left to the relay.
func (a *Auditor) Audit(ctx context.Context, queue string, all, dryRun bool, progress func(Counts)) (Counts, error) {
	if !dryRun {
		a.flush(ctx)
	}
	report := &report{progress: progress, observe: a.config.Observe}
	watches := a.watching(queue)
	if len(watches) == 0 {
		return Counts{}, fmt.Errorf("%w: %q", ErrNoQueue, queue)
	}
	for i, w := range watches {
		p := &pass{Auditor: a, db: w.db, queue: w.queue, dry: dryRun, overdue: !all, report: report}
		if err := p.run(ctx); err != nil {
			return report.counts, fmt.Errorf("audit %s: %w", w.queue.Name, err)
		}
		if isLast := i+1 == len(watches) || watches[i+1].queue != w.queue; !all || !isLast {
			continue // The queue's rows are also in the next database.
		}
		if err := a.removeEnded(ctx, w.queue, dryRun, report); err != nil {
			return report.counts, fmt.Errorf("audit %s: %w", w.queue.Name, err)
		}
	}
	return report.counts, nil
}

// flush makes the settler write everything it knows, after this bridge's pollers have reported.
func (a *Auditor) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if !wait.Sleep(ctx, a.config.grace) {
		return
	}
	if err := a.config.Flush(ctx); err != nil {
		a.log.WarnContext(ctx, "outbox is audited without all acknowledgements: some messages may be published twice",
			"event", "outbox_audit_unflushed", "err", err)
	}
}

// report sums the counts of several goroutines.
type report struct {
	mu       sync.Mutex
	counts   Counts
	progress func(Counts)
	observe  func(Counts)
}

// mended is how many rows now agree with Redis: it has their message, or they record how that
// ended.
func (r *report) mended() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return int(r.counts.There + r.counts.PutBack + r.counts.Settled)
}

func (r *report) add(c Counts) {
	if r.observe != nil {
		r.observe(c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.add(c)
	if r.progress != nil {
		r.progress(r.counts)
	}
}
