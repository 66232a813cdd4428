package relay

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/delaybridge/delaybridge/internal/outbox"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

// Defaults of [Config].
const (
	defaultHorizon = time.Hour
	defaultPoll    = 200 * time.Millisecond
	defaultKeep    = 24 * time.Hour
	defaultLanes   = 2
	// A script of Redis takes the rows of one shard, so that a batch over many
	// shards makes small scripts: 2,000 rows cost a third less than 500, of
	// everybody's CPU (make bench).
	defaultBatch = 2000
)

// Config describes a [Relay]. Zero durations and numbers mean the defaults.
type Config struct {
	Database *table.Database
	// Queues are those whose rows are loaded; rows of others are left alone.
	Queues []outbox.Queue
	// Clock asks Redis for its time.
	Clock func(ctx context.Context) (time.Time, error)
	// Horizon is how long before it is due a row is loaded, default 1 h.
	Horizon time.Duration
	// Poll is the interval between polls of the table, default 200 ms.
	Poll time.Duration
	// Keep is how long rows are kept after their message has ended, default 24
	// h. See [table.Config] for those that are deleted at once.
	Keep time.Duration
	// KeepOperations is how long ended cancels and reschedules are kept, if that is shorter;
	// by default as long as all rows.
	KeepOperations time.Duration
	// Batch is how many rows a lane takes at once at most, default 2,000.
	Batch int
	// Lanes is how many batches are worked on at a time, default 2.
	Lanes int
	// Mine, if not nil, reports whether this instance screens rows beyond the
	// horizon; if nil, it does. It must not block.
	Mine func() bool
	// Notify makes the relay listen for notifications of PostgreSQL, on a
	// channel with the table's name. It needs a session of its own, which a
	// pooler in transaction mode cannot give; the relay polls all the same.
	Notify bool
	// Logger defaults to none, Observer to none.
	Logger   *slog.Logger
	Observer Observer

	lapse  time.Duration // see [outbox.Lapse]; tests have it shorter
	screen time.Duration // how often rows are screened; tests have it sooner
	// For tests: how long a full look may take to be made each time.
	cheapLook time.Duration
}

func (c *Config) validate() error {
	switch {
	case c.Database == nil || c.Clock == nil:
		return errors.New("a relay needs a database and a clock")
	case len(c.Queues) == 0:
		return errors.New("a relay needs a queue")
	case c.Notify && !c.Database.CanListen():
		return errors.New("only PostgreSQL notifies")
	case c.Horizon < 0 || c.Poll < 0 || c.Keep < 0 || c.KeepOperations < 0 || c.Batch < 0 || c.Lanes < 0:
		return errors.New("a relay's numbers must not be negative")
	}
	c.Horizon = cmp.Or(c.Horizon, defaultHorizon)
	c.Poll = cmp.Or(c.Poll, defaultPoll)
	c.Keep = cmp.Or(c.Keep, defaultKeep)
	c.Batch = cmp.Or(c.Batch, defaultBatch)
	c.Lanes = cmp.Or(c.Lanes, defaultLanes)
	c.lapse = cmp.Or(c.lapse, outbox.Lapse)
	c.screen = cmp.Or(c.screen, screenEvery)
	c.cheapLook = cmp.Or(c.cheapLook, defaultCheapLook)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	return nil
}
