package outbox

import "time"

// Age makes a tracked transaction older than it is.
func (t *Tracked) Age(d time.Duration) { t.since = t.since.Add(-d) }
