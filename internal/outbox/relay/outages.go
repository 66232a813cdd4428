package relay

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/delaybridge/delaybridge/internal/outbox"
)

// sayEvery limits how often the same line is logged.
const sayEvery = time.Minute

// outages are the outages of what all queues of a relay depend on.
type outages struct{ database, redis *outbox.Outage }

func newOutages(log *slog.Logger) outages {
	return outages{database: &outbox.Outage{Log: log, What: "database"}, redis: &outbox.Outage{Log: log, What: "redis"}}
}

// refusals logs refused rows: the first at once, later ones once a minute with
// their count. It is safe for concurrent use.
type refusals struct {
	log *slog.Logger

	mu       sync.Mutex
	loggedAt time.Time
	count    int
}

func (f *refusals) say(ctx context.Context, a announcement) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	if !f.loggedAt.IsZero() && time.Since(f.loggedAt) < sayEvery {
		return
	}
	f.log.WarnContext(ctx, "outbox row refused", "event", "outbox_refused", "queue", a.Queue, "id", a.ID,
		"verb", a.verb.String(), "reason", a.reason, "count", f.count)
	f.loggedAt, f.count = time.Now(), 0
}
