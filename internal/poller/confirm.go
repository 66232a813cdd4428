package poller

import "time"

// The waits for a store that does not confirm claims. The limit is part of how long
// a shard stands still after that, so it is short.
const (
	unconfirmedInitial = 100 * time.Millisecond
	unconfirmedLimit   = 2 * time.Second
)

// confirm waits until the claim is as durable as the queue asks. What is published
// before could come again without a mark, where a failover takes the claim back. A
// claim that is not confirmed goes back to wait; the shard takes nothing for a
// while, and then one message, until a claim is confirmed. Why, the store's owner says: it
// knows so of idle queues, too.
func (r *runner) confirm() {
	if !r.b.confirming.Load() {
		return
	}
	r.b.lesson.unconfirmed = r.services.redis.confirm(r.b.claim.Token) != nil
	r.b.confirming.Store(false)
	signal(r.services.settled)
}
