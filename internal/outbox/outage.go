package outbox

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/engine/wait"
)

const backoffInitial, backoffLimit = 200 * time.Millisecond, 5 * time.Second

// NewBackoff is the backoff between tries of a server that is away.
func NewBackoff() wait.Backoff { return wait.Backoff{Initial: backoffInitial, Limit: backoffLimit} }

// sayEvery limits how often the same outage is logged: if some calls succeed and others fail, it
// begins and ends all the time.
const sayEvery = time.Minute

// Outage logs once that something is away, and once that it is back, at the same level, so that a
// filter by level shows both. It is safe for concurrent use.
type Outage struct {
	Log  *slog.Logger
	What string // its name in events
	Text string // for people, if it is not What
	// Level is the level of its lines, if not WARN, for outages that the relay logs already.
	Level slog.Level

	mu    sync.Mutex
	away  time.Time // zero: it is there
	said  time.Time // when it was last logged
	cause error     // of the last try
}

// Observe takes the result of the last try.
func (o *Outage) Observe(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // A failure during shutdown tells nothing.
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
		o.Log.Log(ctx, o.level(), "outbox waits: "+cmp.Or(o.Text, o.What)+" is away", "event", "outbox_"+o.What+"_away", "err", err)
	case err == nil && !o.away.IsZero():
		if o.away.Equal(o.said) {
			o.Log.Log(ctx, o.level(), "outbox goes on: "+cmp.Or(o.Text, o.What)+" is back",
				"event", "outbox_"+o.What+"_back", "away", time.Since(o.away).Round(time.Millisecond))
		}
		o.away = time.Time{}
	}
}

func (o *Outage) level() slog.Level {
	if o.Level != 0 {
		return o.Level
	}
	return slog.LevelWarn
}

// Mark takes the result of the last try without logging.
func (o *Outage) Mark(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cause = err
}

// Last is the result of the last try.
func (o *Outage) Last() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cause
}
