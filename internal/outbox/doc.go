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
// Package table has the SQL. Relay, settler and auditor make the decisions; they import table
// but not each other. This package holds what they share: a queue, its connection to Redis,
// and the logging and backoff of an outage.
//
// The row decides. The relay, the producer's fast path, the consumer of compensation messages
// and the auditor all write to Redis under the row's token, so that a second writer finds
// what the first one did.
//
// Redis is a copy that may be lost in whole or in part at any time, unnoticed. A stored row
// whose message is missing in Redis, without a tombstone, was lost: every end leaves a
// tombstone, which is removed only after the row has it or when no late writer is possible.
// So no loss has to be noticed; noticing one only makes the auditor look sooner.
package outbox
