package poller

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// The waits between two calls of the store that had no answer. The limit is
// part of how long a shard stands still after a failover, so it is short. It
// costs little: the store's client soon dials a dead Redis once a second only.
const (
	redisBackoffInitial = 50 * time.Millisecond
	redisBackoffLimit   = 500 * time.Millisecond
)

// redisView is whether a shard's Redis answers, and what its clock says.
type redisView struct {
	log *slog.Logger
	// downShards is how many shards of the queue have no answer.
	downShards *atomic.Int32
	offset     int64 // Redis' clock, in Unix nanoseconds, minus ours
	isDown     bool
}

// sawTime takes the clock of an answer that was received then.
func (r *redisView) sawTime(redis time.Time, received time.Duration) {
	r.offset = redis.UnixNano() - int64(received)
}

// clock is what Redis' clock said at that instant of ours: never ahead of it but
// by its own drift.
func (r *redisView) clock(at time.Duration) time.Time { return time.Unix(0, r.offset+int64(at)) }

func (r *redisView) silent(event string, err error) {
	if r.isDown {
		return
	}
	r.isDown = true
	if r.downShards.Add(1) == 1 {
		r.log.Warn("redis unavailable", "event", event, "err", err)
	}
}

func (r *redisView) answered() {
	if !r.isDown {
		return
	}
	r.isDown = false
	if r.downShards.Add(-1) == 0 {
		r.log.Info("redis back", "event", "claim")
	}
}

// leave forgets the shard's trouble: nobody looks any more.
func (r *redisView) leave() {
	if r.isDown {
		r.isDown = false
		r.downShards.Add(-1)
	}
}

// heard notes whether a call was answered. What fails after the shard's end is nobody's trouble.
func (s *shard) heard(event string, err error) {
	switch {
	case err == nil:
		s.redis.answered()
	case !s.isOver:
		s.redis.silent(event, err)
	}
}
