package poller

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
	"github.com/delaybridge/delaybridge/internal/poller/rate"
	"github.com/delaybridge/delaybridge/internal/poller/routes"
)

// sayAgain is how often the same trouble is logged, maxTroubles how many are
// remembered.
const (
	sayAgain    = time.Minute
	maxTroubles = 256
)

// Queue is what the shards of a queue share in a process. It is safe for concurrent use.
type Queue struct {
	config Config
	slots  int // for parked messages in a shard
	// base is when it was made: the instants of its shards count from then, by the
	// monotonic clock. phase is how long it is after [wait.Began].
	base  time.Time
	phase time.Duration
	// random, in [0, 1), is the only source of chance; nil is an unpredictable one.
	random func() float64

	suspects routes.Suspects
	rates    *rate.Limiter
	policy   atomic.Pointer[Policy]
	paused   atomic.Pointer[pauses]
	// redisDown is how many shards have no answer of Redis.
	redisDown atomic.Int32

	mu       sync.Mutex
	loggedAt map[string]time.Duration // when a trouble was logged last
	gains    Gains
}

// pauses are what operators have paused of a queue. It never changes.
type pauses struct {
	isAll  bool
	topics map[string]time.Time // and since when
}

// NewQueue checks a configuration, and returns what the shards of the queue share. It starts
// nothing.
func NewQueue(config Config) (*Queue, error) {
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("poller of queue %q: %w", config.Queue, err)
	}
	q := &Queue{config: config.withDefaults(), base: time.Now(), slots: message.MaxSlot}
	q.phase = q.base.Sub(wait.Began)
	q.policy.Store(&q.config.Policy)
	q.rates = rate.New(config.Rates, config.Bucket, len(config.Shards), q.Now, q.config.Logger, q.sayNow)
	return q, nil
}

// Now is the present instant of its shards.
func (q *Queue) Now() time.Duration { return time.Since(q.base) }

// nextCommon is the first of the instants after now at which all shards of the
// process renew their leases, so that their calls can travel together. There is
// one in each such time.
func (q *Queue) nextCommon(now, every time.Duration) time.Duration {
	passed := (now + q.phase) % every
	if passed < 0 {
		passed += every
	}
	return now + every - passed
}

// backoff is a pause that grows with each failure in a row.
func (q *Queue) backoff(initial, limit time.Duration) wait.Backoff {
	return wait.Backoff{Initial: initial, Limit: limit, Random: q.random}
}

// chance is a number in [0, 1).
func (q *Queue) chance() float64 {
	if q.random == nil {
		return rand.Float64()
	}
	return q.random()
}

// Follow has another policy followed from now on, see [Poller.Change].
func (q *Queue) Follow(policy Policy) {
	policy.setDefaults()
	q.policy.Store(&policy)
	q.rates.Follow(policy.Rates)
}

// Pause says which topics are paused from now on, see [Poller.Pause].
func (q *Queue) Pause(topics map[string]time.Time) {
	next := &pauses{topics: maps.Clone(topics)}
	if _, next.isAll = topics[""]; next.isAll {
		delete(next.topics, "")
	}
	q.paused.Store(next)
}

// Rates are those of the queue.
func (q *Queue) Rates() *rate.Limiter { return q.rates }

// sayNow reports whether the trouble was not logged within the last minute, and records that it is now.
func (q *Queue) sayNow(trouble string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.Now()
	if last, known := q.loggedAt[trouble]; known && now-last < sayAgain {
		return false
	}
	if q.loggedAt == nil || len(q.loggedAt) >= maxTroubles {
		q.loggedAt = make(map[string]time.Duration)
	}
	q.loggedAt[trouble] = now
	return true
}

// Gains are the shards that the poller has come to hold.
type Gains struct {
	// Free are the shards that were free or handed over. Lapsed are
	// those whose holder had fallen silent: its lease had to end first.
	Free, Lapsed []int
	// Reclaimed counts the messages of claims that earlier holders had left.
	Reclaimed int
}

// takeGains returns the gains since the last call. The lists are sorted.
func (q *Queue) takeGains() Gains {
	q.mu.Lock()
	defer q.mu.Unlock()
	got := q.gains
	q.gains = Gains{}
	slices.Sort(got.Free)
	slices.Sort(got.Lapsed)
	return got
}

// gain records a shard. The lists are bounded by the number of shards, even if they are never
// read.
func (q *Queue) gain(shard int, hasLapsed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := &q.gains.Free
	if hasLapsed {
		list = &q.gains.Lapsed
	}
	if !slices.Contains(*list, shard) {
		*list = append(*list, shard)
	}
}

// reclaim notes messages of claims that earlier holders had left.
func (q *Queue) reclaim(messages int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gains.Reclaimed += messages
}

// redisSilent records that a shard gets no answer from Redis. It reports whether it is the first.
func (q *Queue) redisSilent() (isFirst bool) { return q.redisDown.Add(1) == 1 }

// redisBack records that it gets answers again. It reports whether it was the last without.
func (q *Queue) redisBack() (isLast bool) { return q.redisDown.Add(-1) == 0 }

// recovered, deferred, makes an error of a panic. A nil err drops it.
func recovered(log *slog.Logger, event string, err *error) {
	if cause := recover(); cause != nil {
		logPanic(log, event, cause)
		if err != nil {
			*err = fmt.Errorf("%s panicked: %v", event, cause)
		}
	}
}

func logPanic(log *slog.Logger, event string, cause any) {
	log.Error("panic", "event", event, "err", fmt.Sprint(cause), "stack", string(debug.Stack()))
}
