// Package table is all SQL of the outbox, in both dialects: it finds, locks, reads and
// writes rows. It decides nothing about messages, and knows nothing of Redis.
//
// A row asks for something: to schedule a message, or to cancel or reschedule one (an
// operation). The row of a message is live while it is pending or stored.
//
//	             relay: Redis has it          settler: it was published, or cancelled
//	pending ────────────────────────► stored ────────────────────────► published, cancelled
//	   │   ▲                            │  ▲
//	   │   └── rescheduled, not there ──┘  └── rescheduled: another token and due time
//	   └──► published, cancelled (Redis knew it already), refused (it can never be stored)
//
//	pending operation ──► stored (it moved the message), cancelled, too_late, unknown,
//	                      superseded (a later one came first), refused
//
// A row is purged a while after it has ended.
//
// Each reader has a type of its own: [Pending] tells what a relay has to take, and [Tx]
// locks it and writes what became of it; [Stored] is for the auditor; [Ended] for the
// settler and the purge; [Listing] for people.
//
// The unit of work is an identity (queue, key, id): [Tx.Gather] locks all pending rows
// of it, or leaves it for the next round. What is open of an identity has an index of its own,
// and is locked by its numbers: so neither reads nor locks grow with what has ended. Rows are found by their queue and status. To
// look above a number ([Pending.New]) is only quicker: a transaction with a lower one may
// commit later, so somebody looks at everything, too. All locks are
// row locks with SKIP LOCKED, and rows are changed only when Redis has answered, just
// before the commit. So no producer's transaction waits for Redis.
package table
