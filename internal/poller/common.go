package poller

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/message"
	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

// sayAgain is how often the same trouble is logged, maxTroubles how many are
// remembered.
const (
	sayAgain    = time.Minute
	maxTroubles = 256
)

// common is what the shards of a queue share.
type common struct {
	config Config
	clock  clock
	slots  int // for parked messages in a shard
	// random, in [0, 1), is all that is left to chance; nil is from nowhere that can be
	// told before.
	random func() float64
	news   news
	gains  gains

	suspects suspects
	policy   atomic.Pointer[Policy]
	paused   atomic.Pointer[pauses]
	rates    *rates
}

// news is what the shards of a queue say once for all of them.
type news struct {
	// redisDownShards is how many have no answer of Redis.
	redisDownShards atomic.Int32
	troubles        troubles
}

func newCommon(config Config) *common {
	c := &common{config: config, clock: newClock(), slots: message.MaxSlot}
	c.policy.Store(&c.config.Policy)
	c.news.troubles.now = c.clock.now
	c.rates = newRates(&c.config, c.clock, c.news.troubles.sayNow)
	return c
}

// backoff is a pause that grows with each failure in a row.
func (c *common) backoff(initial, limit time.Duration) wait.Backoff {
	return wait.Backoff{Initial: initial, Limit: limit, Random: c.random}
}

// chance is a number in [0, 1).
func (c *common) chance() float64 {
	if c.random == nil {
		return rand.Float64()
	}
	return c.random()
}

// troubles remembers what was logged. It is safe for concurrent use.
type troubles struct {
	now  func() time.Duration
	mu   sync.Mutex
	said map[string]time.Duration
}

// sayNow reports whether the trouble was not said within the last minute.
func (t *troubles) sayNow(trouble string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if last, known := t.said[trouble]; known && now-last < sayAgain {
		return false
	}
	if t.said == nil || len(t.said) >= maxTroubles {
		t.said = make(map[string]time.Duration)
	}
	t.said[trouble] = now
	return true
}

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

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// signal notes in a channel of 1 that something happened; several become one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func drainSignal(c <-chan struct{}) {
	select {
	case <-c:
	default:
	}
}
