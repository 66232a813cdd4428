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
// Package table speaks SQL; relay, settler and auditor decide, and know the table but
// not each other. Here is what they share: a queue, the way to its Redis, and how an
// outage is said and waited out.
//
// The row decides. Whoever writes to Redis for it, the relay, the producer's fast
// path, the consumer of compensation messages or the auditor, does so under the row's
// token, so that the second writer finds what the first has done.
//
// Redis is a copy that may be lost in whole or in part at any time, unnoticed. A
// stored row whose message Redis does not have, and of which it has no trace
// either, was lost: nothing ends without a trace, and a trace goes only when the
// row has it, or when nobody can be late any more. So nobody has to notice a loss;
// who does, has the auditor look sooner.
package outbox
