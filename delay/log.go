package delay

import (
	"log/slog"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/store"
)

// WithLogger has the client log what its callers do not see: calls that were done, or
// answered, only after Redis had failed or refused a run of them, at level warn with the
// event "repeated", the verb, how long they took and the cause. That is what a failover,
// a slow Redis or a change of shards looks like to a producer. There is a line a second
// at the most; "more" tells how many have had none. Errors are the callers', and are not
// logged; nor are bodies, ids or keys. Without it, and with nil, nothing is logged.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.extras.logger = l } }

// repeatedEvery is the least time between two lines.
const repeatedEvery = time.Second

// repeatedLog writes a line for calls that were repeated.
type repeatedLog struct {
	logger *slog.Logger

	mu   sync.Mutex
	next time.Time // no line before
	more int       // without a line since the last one
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
