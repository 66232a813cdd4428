// Package poller moves due messages from Redis to the broker: for each shard of
// a queue it claims what is due, hands it to the sink, and settles each message
// by the sink's outcome.
//
// # A machine and its driver
//
// A shard of a queue is a machine, type [Shard]: it takes events and says what to do. It
// reads no clock, never waits and starts no goroutine, so a test can replay any story of
// it from a seed (TestSimulation). Its driver has the clock, sleeps, makes the calls,
// each in a goroutine of its own, and passes on their results:
//
//	              what it is told                      what it has done
//	           Claimed, Reclaimed, Loaded            Claim, Reclaim, Parked
//	driver ──► Confirmed, ToldTopics, Settled ──►    Confirm, Topics, Settle   ──► driver
//	           outcomes, Hinted, Woken, Drain        Publish
//	                            Step: what is due by now
//
// All that a shard knows is written by this one goroutine; what the shards of a process
// share is the sink's window, and what a [Queue] has.
//
// It is made of machines, each of which alone writes what it knows:
//
//	              ┌─► planner: when to call the store, and for what; the lease
//	Shard ────────┼─► batch.Flight: what is in flight, in which order ─┐
//	 claim,       │                                                    ▼
//	 publish,     ├─► routes.Table: what takes nothing, and where that waits ─┐
//	 settle       │                                                           ▼
//	              └─► rate.Quota: how much may be published
//
// # One turn
//
// [Shard.Step] takes the outcomes that have come, settles what is decided, and makes the
// next claim where it is time:
//
//	sleep ──► pick ──► reserve ──► claim ──► begin ──► sleep
//	 until     what is   room in     up to so   publish    …
//	 due, a    due, or   the sink's  many, and  what need
//	 hint, or  a slot    window      renew the  not wait
//	 a renewal of parked             lease
//
// Where the queue asks for durability, nothing of a claim is published before it is confirmed.
//
// Where the whole sink fails, nothing is claimed at all: that is the window's matter, see
// package window. Only a connection speaks for the whole sink. Silence does not: of a broker that
// answers nobody, each route is closed by itself, since what fills the window may all be of the
// one that hangs.
//
// # What it keeps to, whatever fails
//
//   - A claim without an answer is repeated with the same token, so that a
//     batch is never taken and forgotten.
//   - If the queue asks for durability, no message of an unconfirmed claim is
//     published: they go back to wait.
//   - No publish starts after the lease or the claim's deadline, by the
//     monotonic clock from before the call that granted it.
//   - Messages of one Key and Topic are published in due order, see package batch. What a claim
//     has taken goes back if its answer shows that earlier ones may wait elsewhere.
//   - While a sink or a route is down nothing is held, and no attempt is used up.
//   - No error and no panic ends a loop.
//
// The package knows no Redis and no broker: [Store] and [sinks.Sink] are what
// it needs of them.
package poller
