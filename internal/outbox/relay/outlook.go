package relay

import (
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
	"github.com/delaybridge/delaybridge/internal/outbox/table"
)

const (
	// clockMargin is how far the clocks of Redis' nodes may be apart.
	clockMargin = 2 * time.Second
	// skewMargin is how wrong the measured difference of the clocks of database and
	// Redis may be, unknownSkew what it may be before it was measured.
	skewMargin, unknownSkew = 2 * time.Second, time.Minute
	// tombstone is how long Redis remembers how a token has ended, see [store.Row].
	tombstone = time.Minute
	// askedWithin is how long after the look Redis may be asked, at the latest.
	askedWithin = startWithin + redisPhase
	// remembered is how long after a message was due Redis certainly knows how it
	// ended, counted to the look.
	remembered = tombstone - askedWithin - clockMargin
)

// outlook is the time at which rows are taken, and what follows from it.
type outlook struct {
	now     time.Time // by Redis' clock
	read    time.Time // by our own clock, when now was read
	horizon time.Duration
	ahead   time.Duration // of Redis' clock, the database's, at most
}

// untilMs returns the due time up to which rows are loaded.
func (o outlook) untilMs() int64 { return o.now.Add(o.horizon).UnixMilli() }

func (o outlook) isLoadable(r *table.Row) bool { return r.DueMs <= o.untilMs() }

// markOf returns when a pending row's message is marked. A producer's own put may have
// published it, and Redis may have lost that since. Or the row had its end before a
// failover of the database undid that; then it was due for longer than Redis
// remembers.
func (o outlook) markOf(r *table.Row) store.Mark {
	if r.Maybe || o.now.Sub(r.DueAt()) > remembered {
		return store.MarkAlways
	}
	return store.MarkDueIfOlder
}

// maybeOut reports whether a copy of the row's message may be out, if Redis knows
// nothing of it, by the same rules as the marks. ifOlder says that this holds only if
// the row is older than the queue in Redis.
func (o outlook) maybeOut(r *table.Row) (maybe, ifOlder bool) {
	since := o.now.Sub(r.DueAt())
	switch {
	case r.Maybe || since > remembered:
		return true, false
	case since < -askedWithin-clockMargin: // Until Redis is asked, nobody has claimed it.
		return false, false
	case r.State == table.StateStored:
		return true, false
	default:
		return false, true
	}
}

// made returns the earliest time at which the row can have been made, by Redis' clock.
func (o outlook) made(r *table.Row) time.Time { return time.UnixMilli(r.CreatedMs).Add(-o.ahead) }
