package outbox

import "time"

// Age makes a tracked transaction older than it is.
func (t *Tracked) Age(d time.Duration) { t.since = t.since.Add(-d) }

// WithPatience sets how long a transaction waits for Redis.
func WithPatience(d time.Duration) Option { return func(o *options) { o.patience = d } }
