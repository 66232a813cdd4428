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
// The client is the real one, and runs the real scripts in a Redis within the
// process, so calls answer exactly as in production, with all checks, limits and
// errors. The package replaces the bridge and the broker. It opens no port and never
// sleeps, and queues of parallel tests are independent. It works in a bubble of
// testing/synctest, too.
//
// # Time
//
// The clock stands still until [Queue.Advance] moves it. Then it goes from one due
// time to the next, so that each message is published at the very instant at which
// it is due, including those that [Queue.Handle] schedules meanwhile.
//
// A due time by [delay.At] is measured on this clock, which starts at the current time.
// If a producer computes due times with a clock of its own, pass it [Queue.Now].
//
// # What is not simulated
//
// A broker that is slow, down or refuses one message of several; attempts; duplicates;
// and [delay.ErrMaybePublished]. Those need a real bridge, see `bridge dev`. To test
// calls that fail because Redis does, embed the queue in a type that answers in its
// place.
package delaytest
