// Package delaytest tests producers without a server: a queue in memory with a clock
// that the test moves.
//
//	func TestTimeout(t *testing.T) {
//		queue := delaytest.New(t, "orders")
//		shop := NewShop(queue.Client) // or NewShop(queue), if it takes a delay.Scheduler
//
//		shop.PlaceOrder(t.Context(), 42)
//		queue.RequireScheduled("order.timeout", delay.After(30*time.Minute))
//
//		queue.Advance(30 * time.Minute)
//		m := queue.RequirePublished("order.timeout")
//	}
//
// The client is the real one, and so are the scripts that it runs, in a Redis within
// the process: calls answer exactly as in production, with all checks, limits and
// errors. The package stands for the bridge and the broker behind it. Nothing
// listens, nothing sleeps, and queues of parallel tests do not know each other. It
// works in a bubble of testing/synctest, too.
//
// # Time
//
// The clock stands still until [Queue.Advance] moves it, and then goes from one due
// time to the next, up to the end: each message is published at the very instant at
// which it is due, what [Queue.Handle] schedules meanwhile included.
//
// A due time by [delay.At] counts from this clock, which begins with the time of day: a
// producer that computes one with its own clock should be given [Queue.Now].
//
// # What is not there
//
// A broker that is slow, down or refuses one message of several, attempts, duplicates,
// and [delay.ErrMaybePublished]: those need a real bridge, see `bridge dev`. Calls that
// fail because Redis does are made by a value that embeds the queue and answers in its
// place.
package delaytest
