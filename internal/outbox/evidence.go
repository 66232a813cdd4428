package outbox

import "time"

const (
	// redisPhase is how long after its begin a transaction may still wait for Redis.
	// [store.Rows.Put] wants it to be shorter than store.MaxCall.
	redisPhase = 8 * time.Second
	// startWithin is how old evidence may be when a transaction begins.
	startWithin = 5 * time.Second
	// remembered is for how long Redis certainly knows how a token ended, at the
	// moment at which evidence is read: a tombstone's life less the longest way to Redis.
	remembered = 60*time.Second - redisPhase - startWithin
	// beatEvery is how often a relay is seen, and dead is how long it is silent
	// when it is held to have died.
	beatEvery = 5 * time.Second
	dead      = 15 * time.Second
	// deathMargin is how long after it was last seen a relay may have written to
	// Redis: one wait for Redis, and what a lane tolerates of a late beat.
	deathMargin = redisPhase + 20*time.Second
)

// evidence tells whether a row may have been written to Redis by somebody who
// could not say so.
type evidence struct {
	databaseMs int64   // the database's clock
	horizonMs  int64   // how long before it is due a row is loaded
	deaths     []int64 // when relays that died uncleanly were last seen
	read       time.Time
}

// sinceMs is the earliest instant at which the row may have been written.
func (e evidence) sinceMs(r *row) int64 {
	if r.verb != verbSchedule || r.tried || r.revision > 0 {
		return r.createdMs
	}
	return max(r.createdMs, r.dueMs-e.horizonMs)
}

// forgotten reports whether the row may have been written so long ago that Redis
// may have forgotten how it ended.
func (e evidence) forgotten(r *row) bool {
	since := e.sinceMs(r)
	if e.databaseMs-since <= remembered.Milliseconds() {
		return false
	}
	if r.tried {
		return true
	}
	for _, seen := range e.deaths {
		if seen+deathMargin.Milliseconds() >= since {
			return true
		}
	}
	return false
}
