package poller

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/delaybridge/delaybridge/internal/message"
	"github.com/delaybridge/delaybridge/internal/window"
)

// sayAgain is how often the same trouble is logged, maxTroubles how many are
// remembered.
const (
	sayAgain    = time.Minute
	maxTroubles = 256
)

// common is what the shards of a queue share.
type common struct {
	Config
	window *window.Window
	base   time.Time
	slots  int // for parked messages in a shard
	// phase is how long base is after processBase.
	phase time.Duration
	// redisDownShards counts, so that many shards that see one fault say it once.
	redisDownShards atomic.Int32
	// sinkKnown: the sink has answered once.
	sinkKnown atomic.Bool

	mu       sync.Mutex
	said     map[string]time.Duration
	obtained Obtained
}

func newCommon(config Config) *common {
	base := time.Now()
	return &common{
		Config: config, window: config.Window, slots: message.MaxSlot, base: base, phase: base.Sub(processBase), said: make(map[string]time.Duration),
	}
}

// now is an instant of the monotonic clock.
func (c *common) now() time.Duration { return time.Since(c.base) }

// processBase is where the common instants of all pollers of the process count from.
var processBase = time.Now()

// nextCommon is the first of the instants after now at which all shards of the
// process renew their leases, so that their calls can travel together. It is
// at most renewEvery away.
func (c *common) nextCommon(now time.Duration) time.Duration {
	every := c.renewEvery()
	passed := (now + c.phase) % every
	if passed < 0 {
		passed += every
	}
	return now + every - passed
}

// callTimeout limits one call of the store: a longer one is of no use, since
// the lease counts from its beginning.
func (c *common) callTimeout() time.Duration { return c.Lease }

// sayNow reports whether the trouble was not said within the last minute.
func (c *common) sayNow(trouble string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if last, known := c.said[trouble]; known && now-last < sayAgain {
		return false
	}
	if len(c.said) >= maxTroubles {
		clear(c.said)
	}
	c.said[trouble] = now
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
