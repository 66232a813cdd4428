// Package poller moves due messages from Redis to the broker: for each shard of
// a queue it claims what is due, hands it to the sink, and settles each message
// by what the sink said of it.
//
// # A machine and its driver
//
// A shard of a queue is a machine, type [shard]: it is told what has happened, and says
// what to do. It reads no clock, waits for nothing and starts no goroutine, so a test can
// replay any story of it from a seed (TestSimulation). Its [driver] has the clock, sleeps,
// makes the calls, each in a goroutine of its own, and tells it what came of them:
//
//	              what it is told                      what it has done
//	           claimed, reclaimed, loaded            claim, reclaim, parked
//	driver ──► confirmed, toldTopics, settled ──►    confirm, topics, settle   ──► driver
//	           outcomes, hinted, woken, drain        publish
//	                            step: what is due by now
//
// All that a shard knows is written by this one goroutine; what the shards of a process
// share is the sink's window, the rates, [suspects] and the little in [common].
//
// # One turn
//
// [shard.step] takes the outcomes that have come, settles what is decided, and makes the
// next claim where it is time:
//
//	sleep ──► pick ──► reserve ──► claim ──► begin ──► sleep
//	 until     what is   room in     up to so   publish    …
//	 due, a    due, or   the sink's  many, and  what need
//	 hint, or  a slot    window      renew the  not wait
//	 a renewal of parked             lease
//
// The timed look is the truth, a hint may be lost. Every instant that it waits for is in its
// [timetable], the lease in [holding], its place in the window in [turn], and the call
// without an answer in [asking].
//
// # One batch
//
// What a claim took is a batch. Where the queue asks for durability, nothing of it is
// published before the claim is confirmed. A message of it is, in this order:
//
//	behind ──► with the sink ──► decided ──► settled
//	  │ an earlier batch      one outcome   a verdict each, written to Redis
//	  │ has its Key           each          in parts: 100 ms after the first
//	  └───────────────────────────────────► given back: it goes to wait again
//
// So a message that hangs keeps nobody: what was acknowledged is settled, and
// the rest of the claim lives on under its token. Nor does it keep its Key for longer than
// what it is behind: see [order]. Batches of which all that is left hangs, and probes, have a
// bound of their own.
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
