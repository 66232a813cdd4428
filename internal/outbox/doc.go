// Package outbox is the bridge's side of "database first": it brings the rows
// that producers have committed (package delay/outbox) into Redis, exactly as
// the newest row of each message says.
//
// The row decides. Whoever writes to Redis for it, the relay here, the
// producer's fast path or the consumer of compensation messages, does so under
// the row's token, so that the second writer finds what the first has done. The
// unit of work is an identity (queue, key, id): a relay locks all pending rows
// of it, or leaves it for the next round.
//
// Rows are found by their status, never by "id > last": a transaction with a
// lower id may commit later. While Redis is asked, a transaction holds row locks
// only, with SKIP LOCKED; it changes rows when Redis has answered, and commits
// at once. So no producer's transaction waits for Redis.
//
// It speaks SQL, and reaches Redis through [Store]. It publishes nothing.
package outbox
