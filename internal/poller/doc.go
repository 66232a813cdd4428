// Package poller moves due messages from Redis to the broker: for each shard of
// a queue it claims what is due, hands it to the sink, and settles each message
// by what the sink said of it.
//
// # One turn
//
// One goroutine a shard, the loop, makes all claims:
//
//	sleep ──► pick ──► reserve ──► claim ──► dispatch ──► sleep
//	 until     what is   room in     up to so   a goroutine    …
//	 due, a    due, or   the sink's  many, and  that runs
//	 hint, or  a slot    window      renew the  the batch
//	 a renewal of parked             lease
//
// The timed look is the truth, a hint may be lost. The loop, type [shard], goes
// over parts that do not know each other: every instant that it waits for is in its
// [timetable], the lease in [holding], its place in the window in [turn], the
// request without an answer in [asking], and the batches in [inFlight].
//
// # One batch
//
// What a claim took is a batch, and one goroutine, its runner, sees it through.
// Where the queue asks for durability, it waits first until the claim is confirmed.
// A message of it is, in this order:
//
//	behind ──► with the sink ──► decided ──► settled
//	  │ an earlier batch      one outcome   a verdict each, written to Redis
//	  │ has its Key           each          in parts: 100 ms after the first
//	  └───────────────────────────────────► given back: it goes to wait again
//
// So a message that hangs keeps nobody: what was acknowledged is settled, and
// the rest of the claim lives on under its token.
//
// # Routes
//
// Brokers fail by parts. Where an outcome says that a message's route is
// unavailable, or where it hangs, the route is closed and its messages are
// parked: they leave the head of the shard once, into a slot of their own, with
// their due times. A slot is probed with a message, after growing pauses; once
// the broker takes it, the slot is claimed in due order until it is empty, and
// only then the route is open again, see [routes]. Where the whole sink fails,
// nothing is claimed at all: that is the window's matter, see package window. Only
// a connection speaks for the whole sink. Silence does not: of a broker that
// answers nobody, each route is closed by itself, since what fills the window may
// all be of the one that hangs. What one shard has found to hang, the others of the
// queue do not try for themselves, see [suspects].
//
// # What it keeps to, whatever fails
//
//   - A claim that was not answered is asked for again with the same token, so
//     that a batch is never taken and forgotten.
//   - Where the queue asks for durability, nothing is published of a claim that is
//     not confirmed: it goes back to wait.
//   - No publish starts after the lease or the claim's deadline, by the
//     monotonic clock from before the call that granted it.
//   - Messages of one Key and Topic are published in due order, see [order].
//   - While a sink or a route is down nothing is held, and no attempt is used up.
//   - No error and no panic ends a loop.
//
// The package knows no Redis and no broker: [Store] and [sinks.Sink] are what
// it needs of them.
package poller
