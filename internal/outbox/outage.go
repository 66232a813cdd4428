package outbox

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/wait"
)

const backoffInitial, backoffLimit = 200 * time.Millisecond, 5 * time.Second

func newBackoff() wait.Backoff { return wait.Backoff{Initial: backoffInitial, Limit: backoffLimit} }

// sayEvery is how often the same outage is worth a line in the log: where some
// calls succeed and others fail, it begins and ends all the time.
const sayEvery = time.Minute

// outage says once that something is away, and once that it is back. It is safe
// for concurrent use.
type outage struct {
	log  *slog.Logger
	what string
	text string // for people, if it is not what
	// level is that of what it says, if not WARN: where the relay says it already.
	level slog.Level

	mu    sync.Mutex
	away  time.Time // zero: it is there
	said  time.Time // when it was last said that it is away
	cause error     // of the last try
}

// observe is told how the last try went.
func (o *outage) observe(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // What fails at the end says nothing.
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cause = err
	switch {
	case err != nil && o.away.IsZero():
		o.away = time.Now()
		if !o.said.IsZero() && o.away.Sub(o.said) < sayEvery {
			return
		}
		o.said = o.away
		o.log.Log(ctx, o.levelOr(slog.LevelWarn), "outbox waits: "+cmp.Or(o.text, o.what)+" is away", "event", "outbox_"+o.what+"_away", "err", err)
	case err == nil && !o.away.IsZero():
		if o.away.Equal(o.said) {
			o.log.Log(ctx, o.levelOr(slog.LevelInfo), "outbox goes on: "+cmp.Or(o.text, o.what)+" is back", "event", "outbox_"+o.what+"_back", "away", time.Since(o.away).Round(time.Millisecond))
		}
		o.away = time.Time{}
	}
}

func (o *outage) levelOr(level slog.Level) slog.Level {
	if o.level != 0 {
		return o.level
	}
	return level
}

// mark notes how the last try went, and says nothing.
func (o *outage) mark(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cause = err
}

// last is how the last try went.
func (o *outage) last() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cause
}

// outages are those of all that a relay depends on.
type outages struct {
	database, redis *outage
	// queues, by name, are those of messages; operations those of operations, which
	// a full Redis still takes.
	queues, operations map[string]*outage
}

func newOutages(log *slog.Logger, names []string) outages {
	o := outages{
		database: &outage{log: log, what: "database"}, redis: &outage{log: log, what: "redis"},
		queues: make(map[string]*outage, len(names)), operations: make(map[string]*outage, len(names)),
	}
	for _, name := range names {
		o.queues[name] = &outage{log: log.With("queue", name), what: "queue"}
		o.operations[name] = &outage{log: log.With("queue", name), what: "operations"}
	}
	return o
}

// refusals says that rows were refused: the first at once, later ones once a
// minute with their count. It is safe for concurrent use.
type refusals struct {
	log *slog.Logger

	mu    sync.Mutex
	said  time.Time
	count int
}

func (f *refusals) say(ctx context.Context, a applied) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	if !f.said.IsZero() && time.Since(f.said) < time.Minute {
		return
	}
	f.log.WarnContext(ctx, "outbox row refused", "event", "outbox_refused", "queue", a.queue, "id", a.id,
		"verb", a.verb.String(), "reason", a.reason, "count", f.count)
	f.said, f.count = time.Now(), 0
}
