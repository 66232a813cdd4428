// Package outbox is the bridge's side of "database first": it brings the rows
// that producers have committed (package delay/outbox) into Redis, exactly as
// the newest row of each message says, tells the rows what became of their
// messages, and puts back what Redis has lost.
//
//	                 relay: takes pending rows           claim, publish
//	             ┌──────────────────────────────► Redis ────────────────► broker
//	producer ──► rows ◄──────────────────────────── │
//	 commits     │    settler: drains the ledger     │
//	             └──────────────────────────────────►┘
//	                 auditor: stored rows of which Redis knows nothing
//
// The row decides. Whoever writes to Redis for it, the relay here, the
// producer's fast path, the consumer of compensation messages or the auditor,
// does so under the row's token, so that the second writer finds what the first
// has done. It may be pending, stored (Redis has its message) or ended, and lives
// until it has ended, and a while longer. The unit of work is an identity (queue,
// key, id): a relay locks all pending rows of it, or leaves it for the next round.
//
// Redis is a copy that may be lost in whole or in part at any time, unnoticed. A
// stored row whose message Redis does not have, and of which it has no trace
// either, was lost: nothing ends without a trace, and a trace goes only when the
// row has it, or when nobody can be late any more. So nobody has to notice a loss;
// who does, has the auditor look sooner.
//
// Rows are found by their queue and status, never by "id > last": a transaction
// with a lower id may commit later. While Redis is asked, a transaction holds row
// locks only, with SKIP LOCKED; it changes rows when Redis has answered, and
// commits at once. So no producer's transaction waits for Redis.
//
// It speaks SQL, and reaches Redis through [Store]. It publishes nothing.
package outbox
