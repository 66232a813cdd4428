// Package store keeps the delayed messages in Redis. Only this package and those
// below it speak to Redis.
//
// # Views
//
// A [Queue] is one delay queue. Each kind of caller has a view with what it needs
// and no more:
//
//	[Producer]  schedule, cancel, reschedule
//	[Shard]     one shard as its poller sees it: claim, confirm, settle, reclaim, hand over
//	[Rows]      messages that belong to rows of a database: put, cancel, compare, ledger
//	[Members]   heartbeats of the instances, with the pauses and rates that they share
//
// and [Queue.Layouts] finds and changes the layout. The views share a core: the queue's
// name, the clocks, the layout in use. Calls of producers and for rows are one machine:
// call.go has the state of a call, caller.go decides which runs follow until all are
// answered, run.go is one run, and send.go sends it, with others of its node.
//
// Packages off a message's path import this one, and reach the queue by [Queue.Run],
// [Queue.Redis], [Queue.Repeat] and the layout:
//
//	inspect   reads for operators: one message, lists, stats, counters, forecast, audit; and
//	          what operators do by hand
//	job       one operation on many messages
//	recurring schedules that fire again and again, and the plan of their firings
//	turns     which messages of a consumer's key are outstanding, see delay/retry
//	declared  the queues that were declared by the API
//	verify    checks whether the keys agree with each other, and repairs them
//
// The packages below, each of which imports only those above it in this list:
//
//	keys      the names of the keys
//	scripts   the Lua files, and the decoding of their replies
//	sound     invariant I6: what must hold between the keys
//	rediserr  the meaning of an error: whether the command ran, and why it failed
//	conn      runs a script: on its node, with others, until it is confirmed
//	clock     estimates the clocks of the servers
//	hints     hints by pub/sub
//	pause     the stored form of a queue's pauses
//	layout    how the queue is spread over its shards, and changes of that
//	rights    the rights that a user of Redis needs, by role
//
// # Data model
//
// All keys of a shard share the hash tag {queue:shard}, so that every script
// runs on one node of a Redis Cluster. "delay" is the default prefix.
//
//	delay:{q:3}:due        ZSET    id -> score: where a message waits, see Scores
//	delay:{q:3}:msg        HASH    id -> stored message, see [message.Encode]
//	delay:{q:3}:claims     HASH    claim token -> its ids and scores, packed in one string
//	delay:{q:3}:deadlines  ZSET    claim token -> deadline_ms
//	delay:{q:3}:attempts   HASH    id -> "failures begun maybe_out unknowns", only where one is not 0;
//	                               behind them, of a retry, the promised due_ms
//	delay:{q:3}:gone       HASH    token -> what a cancel or reschedule answered, or that the token has ended;
//	                               of an outbox message: "p" published, "c" cancelled, "n" cancelled
//	                               before it was here, "m<next token>" moved; of one without a row it is
//	                               there from the start, as "c": it counts once the message is not here
//	                               of one that was created under an idempotency key, from its creation on,
//	                               "s<code> <due_ms>": what its schedule has answered, see [Once]; of each call of
//	                               a name, what it has answered, see [Producer.Traced]
//	delay:{q:3}:gonettl    ZSET    token -> expiry_ms of its entry in gone
//	delay:{q:3}:dead       ZSET    id -> died_ms
//	delay:{q:3}:deadmsg    HASH    id -> dead letter, see [message.DecodeDeadLetter]
//	delay:{q:3}:settled    HASH    the ledger: token of a row -> "p<id>", "c<id>" or "d<due_ms>:<id>", "C" and "d+" where a copy may be out
//	delay:{q:3}:tags       ZSET    tag, NUL, id -> 0: the index of tags
//	delay:{q:3}:ended      ZSET    id -> ended_ms: the history, where the queue keeps one
//	delay:{q:3}:ends       HASH    id -> what became of the message, see [message.ParseEnd]
//	delay:{q:3}:routes     HASH    slot -> "since_ms length:route reason" of a route that is parked
//	delay:{q:3}:holder     STRING  instance|last claim number|when it was renewed, ms
//	delay:{q:3}:meta       HASH    epoch and layout of the fence, counters, drained; born: when it was made, ms; budget: "12000 messages";
//	                               room, in the first shard: how full the queue and Redis are, and will be
//	delay:{q:3}:wake       channel "the head moved earlier", or the holder gave the shard up
//	delay:q:layout         HASH    shards, epoch, sink, max_message, rules; earlier, next, retired, dropping; also a channel;
//	                               "lost:" and an id -> what Redis has lost, until an operator has acknowledged it
//	delay:q:jobs           HASH    id -> record of a job; "id lease", "id stop"; open -> ids that have not ended
//	delay:q:audit          STREAM  what was changed by whom, the last 10,000
//	delay:q:audit:calls    STREAM  single messages that operators changed or read by the API, and refusals, the last 10,000
//	delay:q:instances      ZSET    instance -> last heartbeat_ms; also a channel: one came or went, or a pause did
//	delay:{q:DIGEST}:once  STRING  the record of a request under an idempotency key, for a day, see [Once]
//	delay:{q:DIGEST}:turns HASH    the messages of a consumer's key that are outstanding, see package turns
//	delay:{delay:q:instances}:paused
//	                       HASH    topic -> since when it is paused, ms; the empty topic is the whole queue;
//	                               "by", tab, topic -> the same instant and who has paused it;
//	                               "by", tab, tab -> how many calls there were, so that a late run undoes none
//	delay:{delay:q:instances}:recurring
//	                       HASH    name -> record of a recurring schedule; '' -> the mark of the last change
//
//	delay:{queues}         HASH    of the prefix: declared -> the queues that were declared by the API, revision -> which these are,
//	                               see package declared
//
// Channels carry hints, which may be lost: sharded pub/sub from Redis 7.0 on. A
// script does not fail if it cannot publish a hint.
//
// The id in these keys is [message.Member]: the ID, or Key, NUL and ID.
//
// # Scores
//
// The score of a message that was never claimed is its due time in milliseconds.
// The score of a retry is the time of its next attempt, and its attempts keep the
// promised due time. A message of an unavailable route is parked: its score is
// slot * 2^42 + promised due_ms, so that it comes after all messages that are not
// parked, in due order within its slot. The poller that holds the shard assigns
// the slots. The key routes says which route has which slot, for operators and for
// the next holder; if a failover has lost it, parked messages are still found by
// score. For every verb of a producer, a parked message waits.
//
// # Tags
//
// A message carries its tags as a header, [message.HeaderTags], so rows,
// compensations and dead letters carry them, too. The index has an entry for each tag
// of each message, for as long as the message exists. The script that creates or ends
// a message also updates the index. It reads the tags from the message, in which the
// header comes first (shared/tags.lua); for an acknowledged message, which it does
// not read, the claim has returned them. Messages without tags cost no command. A
// listing by tag reads the messages anyway, so it skips the entries of messages that
// lost their body or were settled by an older version.
//
// # History
//
// A queue may remember how its messages ended. The script that ends a message writes the
// end before anything else, where a Redis at its memory limit refuses the write, and
// ignores that error. So the history never stops anything, and is never guaranteed. Each
// write trims it. An end stays in its shard when homes move, so if a message is in none of
// its homes and the layout has ever changed, a reader searches all shards for its end. An
// end does not say to which life of the id it belongs: it stays when the id is scheduled
// again, or a dead letter is put back. After the limit was lowered, each new end removes
// some of the excess; if the queue no longer keeps a history, package verify does.
//
// # Claims
//
// A claim takes messages out of due and packs them, as "length:score:id", under
// its token. It is settled as a whole or in parts: the rest is packed again, so
// the length of the packed string shows the progress. A reclaim puts each message
// back at its score, but never overwrites a waiting one (I2), whatever the claim
// says. The instance in a token is a name and a boot id, so a process never
// mistakes an earlier process' claims for its own.
//
// # Where a message is
//
// A waiting message is in due and msg. A message in flight is in msg and packed in
// claims, but not in due. A dead one is in dead and deadmsg. So the messages in flight
// are those in msg that are not in due, and the counters of meta always satisfy:
//
//	scheduled = waiting + in flight + dead + published + cancelled + replaced + purged + dropped
//
// where the counters of dropped shards are in the layout's key, as retired.
//
// # Outbox messages
//
// A message that belongs to a row of a database has a token that begins with "~", made
// together with the row. Several writers may bring it here under that token, some of them
// late; outbox.go says why its end leaves a tombstone for as long as any of them may
// come. The ledger records what happens to the message other than by its row: it was
// published (if the queue was opened with the ledger), cancelled, dropped, replaced or
// purged, or got another due time. A bridge copies that into the row. Entries do not
// expire, because a database may be down for long; every bridge with an outbox removes
// them. A token that begins with "~~" belongs to a message without a row (a compensation
// message of a producer without a database). Its end leaves a tombstone, which lives for
// as long as the compensation is valid and keeps earlier layouts alive, but no entry in
// the ledger.
//
// # Changing the shards
//
// The number of shards may change while the queue is in use. First the intent is
// written: the next layout, in the layout's key, as next. Then the meta of every
// shard, old and new, is bound to it by a fence, which refuses producers that know
// another epoch and holds the whole layout. Then the layout is published. So nothing
// is created in an old home once somebody may create in a new one. A caller that is
// refused for long finishes the change; if a failover has lost a fence, whoever meets
// the shard raises it again. A fence is never lowered within one life.
//
// Messages stay where they are. While earlier layouts live, calls visit the
// homes of a message oldest first, and create in the newest only. A shard has
// drained when no message in it has another home in the newest layout. When all
// shards have drained for long enough, the [layout.Keeper] forgets the earlier
// layouts and drops the shards that are not in the newest.
//
// # A shard that was lost
//
// A shard in use without meta was lost, with its messages and its tombstones, so
// a script sent before the loss must not take effect after it. Whoever meets the
// shard (a producer, a poller or the keeper) binds it to a new epoch, and then
// puts the layout under that epoch. No home changes, so the other shards are
// bound when somebody meets them. The meta has the time at which the shard was
// made, as born: bridges recognise the loss by it, and [Rows.Put] which rows are
// older. A writer of rows writes under one epoch, see [ErrReload].
//
// # Rules of the scripts
//
// There is one Lua file per verb in scripts, with its own header. One clock: TIME, read
// once. All reads and checks come before the first write. Redis checks only a script's
// first write against its memory limit, so every script except schedule and replace
// starts with a write that is always allowed; otherwise a full Redis could never drain.
// A miss is false in Lua, not nil.
//
// # Durability
//
// WAIT and WAITAOF follow the script on the same connection, in one pipeline to
// the node that holds the key. From Redis 8 and Valkey 8 on they cover only the
// connection's own writes, and a second run that finds its effect writes
// nothing; so touch.lua comes between them, a write that changes nothing. Their
// counts are checked; a shortfall does not fail the call. After one call has
// waited in vain, only one at a time waits; and a part of the pool is never used
// to wait, see conn/gate.go.
//
// A bridge's writes are as durable as its queue asks, see [Queue.WithDurability]. A claim is
// confirmed by a call of its own, so that its poller can continue meanwhile; a write of [Rows]
// is done only when it is confirmed. Nobody waits for the confirmation of a settlement.
//
// # One call, one effect
//
// A command may run twice: a client resends it, a proxy delivers it late. The verbs of a producer (schedule,
// cancel, reschedule) carry an operation token, a span of Redis' time outside of which the script changes
// nothing, and the number of the run; see call.go. Expired tombstones are removed only by a client that has
// seen Redis' clock run for a tombstone's life without a step. Otherwise a clock set forward and back would
// remove tombstones that a second run needs. The verbs of a poller carry the claim's token.
package store
