// Package table has all SQL of the outbox, in both dialects: it finds, locks, reads and
// writes rows. It makes no decision about messages and does not know Redis.
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
// Each reader has its own type: [PendingRows] finds the rows that a relay has to take, and [Tx] locks
// them and writes the result; [StoredRows] is for the auditor, [EndedRows] for the settler and the
// purge, [Listing] for people.
//
// The unit of work is an identity (queue, key, id): [Tx.Gather] locks all its pending rows, or
// leaves it for the next round. An identity's open rows have an index of their own and are locked
// by number, so neither reads nor locks grow with its ended rows. Rows are found by queue and
// status. Reading above a number ([PendingRows.New]) is only a shortcut: a transaction with a lower
// number may commit later, so there are full looks, too. All locks are row locks with SKIP
// LOCKED, and rows are changed only after Redis has answered, just before the commit. So no
// producer's transaction waits for Redis.
package table
