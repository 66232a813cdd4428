package delay

import (
	"log/slog"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// WithLogger makes the client log what its callers do not see: calls that succeeded, or were
// answered, only after Redis had failed or refused a run. A failover, a slow Redis or a change
// of shards looks like that to a producer. The line has the level warn, the event "repeated",
// the verb, the time taken and the cause. At most one line a second is written; "more" counts
// the calls left out. Errors are returned to the callers and not logged; bodies, ids and keys
// are never logged. Without this option, or with nil, nothing is logged.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.extras.logger = l } }

// repeatedEvery is the least time between two lines.
const repeatedEvery = time.Second

// repeatedLog logs calls that were repeated.
type repeatedLog struct {
	logger *slog.Logger

	mu   sync.Mutex
	next time.Time // no line earlier than this
	more int       // calls without a line since the last one
}

func (l *repeatedLog) add(r store.Repetition) {
	l.mu.Lock()
	now, more := time.Now(), l.more
	if now.Before(l.next) {
		l.more++
		l.mu.Unlock()
		return
	}
	l.next, l.more = now.Add(repeatedEvery), 0
	l.mu.Unlock()
	l.logger.Warn("redis answered late, after a call was repeated", "event", "repeated", "verb", r.Verb,
		"took", r.Took, "cause", r.Cause, "more", more)
}
