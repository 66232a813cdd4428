package relay

import "time"

// Observer receives what the relay's metrics count. Its methods are called from
// several goroutines.
type Observer interface {
	// Backlog is how many rows could be in Redis by now, and how long the oldest
	// of them could have been. Each relay of a database tells the same. Blocked are
	// those that wait for another message of their id to leave.
	Backlog(rows int, oldest time.Duration, blocked int)
	// Applied counts rows by what they asked for (schedule, cancel, reschedule)
	// and their new state.
	Applied(queue, verb, state string)
	// Skew is how far the database's clock is ahead of that of Redis.
	Skew(ahead time.Duration)
	// UnknownQueues is how many rows wait for queues that this bridge does not have.
	UnknownQueues(rows int)
}

type noObserver struct{}

func (noObserver) Backlog(int, time.Duration, int) {}
func (noObserver) Applied(string, string, string)  {}
func (noObserver) Skew(time.Duration)              {}
func (noObserver) UnknownQueues(int)               {}
