// Package store keeps the delayed messages in Redis; no package of ours but this
// one and those below it speaks Redis.
//
// # Doors
//
// A [Queue] is one delay queue. Each reader has a door, with what it needs and no
// more:
//
//	[Producer]  schedule, cancel, reschedule
//	[Shard]     one shard as its poller sees it: claim, confirm, settle, reclaim, hand over
//	[Rows]      messages that stand for rows of a database: put, cancel, compare, ledger
//	[Members]   heartbeats of the instances, and what they hear by them
//
// and [Queue.Layouts] finds and changes the layout. The doors share a core: the
// queue's name, the clocks, the layout in use. A producer's call and a row's are
// one machine: call.go tells what is known of a call, caller.go which runs follow until all
// are answered, run.go is one run, and send.go sends it, with others of its node.
//
// What is not on the way of a message is in packages that import this one, and reach the
// queue by [Queue.Run], [Queue.Redis], [Queue.Repeat] and the layout:
//
//	inspect   all that looks: one message, lists, stats, counters, forecast, audit; and what
//	          operators do by hand
//	job       the same done to many messages
//	verify    whether all that the keys hold is whole; mends it
//
// The packages below, each of which imports only those above it in this list:
//
//	keys      the names of the keys
//	scripts   the Lua files, and how their replies are read
//	sound     what must hold of what the keys have: invariant I6
//	rediserr  what an error says: whether the command ran, and why it failed
//	conn      how a script is run: on its node, with others, until it is confirmed
//	clock     the clocks of the servers, estimated
//	hints     what Redis tells by pub/sub
//	pause     how the pauses of a queue are written down
//	layout    how the queue is spread over its shards, and how that changes
//	rights    what a user of Redis must be allowed, by its role
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
//	                               "s<code> <due_ms>": what its schedule has answered, see [Once]
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
//	delay:{delay:q:instances}:paused
//	                       HASH    topic -> since when it is paused, ms; the empty topic is the whole queue;
//	                               "by", tab, topic -> the same instant and who has paused it
//
// Channels carry hints, which may be lost: sharded pub/sub from Redis 7.0 on. A
// hint that cannot be published is no error of the script.
//
// The id in these keys is [message.Member]: the ID, or Key, NUL and ID.
//
// # Scores
//
// The score of a message that was never claimed is its due time in milliseconds;
// that of a retry is when it is tried again, while its attempts keep the due time
// that was promised. A message of a route that is unavailable is parked: its score
// is slot * 2^42 + promised due_ms, so that it stands behind all that is not
// parked, in due order within its slot. Slots are given by the poller that holds
// the shard. Which route has which slot is told by routes, for people and for the
// next holder; where a failover has lost that, what is parked is still found by
// its score. A parked message waits, for every verb of a producer.
//
// # Tags
//
// A message carries its tags as a header, [message.HeaderTags], so that all that
// carries a message carries them: rows, compensations, dead letters. The index has
// an entry for each tag of each message, for as long as the message is anywhere. What
// creates or ends a message keeps it, in the same script: by the message itself, in
// which the header comes first (shared/tags.lua), or, where an acknowledged message
// is not read, by what its claim has told. Messages without tags cost no command.
// Whoever lists by a tag reads the messages anyway, so an entry of one that lost its
// body, or that a bridge of an older version has settled, is passed over.
//
// # History
//
// A queue may remember what became of its messages. The script that ends one writes it
// down before anything else: there a Redis at its memory limit refuses it, and no error of
// it is the script's. So the history is never in the way, and never certain. It is trimmed
// with each write. An end stays in its shard when homes move, so who finds nothing in the
// homes of a message looks for its end in all shards, if the layout has ever changed.
// An end does not say which life of the id it was of: it stays when the id is scheduled
// again, or a dead letter is put back. Where the limit was lowered, each end takes some of
// those along that are too many; where no history is kept any more, package verify does.
//
// # Claims
//
// A claim takes messages out of due and packs them, as "length:score:id", under
// its token. It is settled as a whole or in parts: what is kept is packed anew,
// so that the length of what is packed tells how far it is. A reclaim puts each
// message back at its score, and nothing over what waits (I2), whatever a claim
// says. The instance in a token is a name and a boot id: a process never takes an
// earlier one's claims for its own.
//
// # Where a message is
//
// It waits: it is in due and msg. In flight: in msg and packed in claims, not
// in due. Dead: in dead and deadmsg. So the messages in flight are those of msg
// that are not in due, and this sum always holds over the counters of meta:
//
//	scheduled = waiting + in flight + dead + published + cancelled + replaced + purged + dropped
//
// where the counters of dropped shards are in the layout's key, as retired.
//
// # Outbox messages
//
// A message that stands for a row of a database has a token that begins with
// "~", made together with the row. Several writers bring it here, at the worst
// late, under that token; see outbox.go for why its end leaves a tombstone for as
// long as any of them may come. What happens to it without its row's doing is
// written into the ledger, from where a bridge tells the row: that it was
// published (where the queue was opened with the ledger), cancelled, dropped, replaced or
// purged, or has another due time. Entries have no time to live, so that a
// database may be down for long: every bridge with an outbox takes them out.
// Tokens that begin with "~~" are those of messages without a row (a compensation
// message of a producer without a database): tombstones, but no ledger. These
// live for as long as the compensation is valid, and earlier layouts with them.
//
// # Changing the shards
//
// The number of shards may change while the queue is in use. The next layout is
// written into the layout's key, as next: the intent. Then the meta of every
// shard, old and new, is bound to it: the fence, which refuses producers that
// know another epoch, and tells the whole layout. Then it is published. So
// nothing is created in an old home once somebody may create in a new one.
// Whoever is refused for long finishes the change; where a failover has lost a
// fence, whoever meets it raises it. A fence of one life is never lowered.
//
// Messages stay where they are. While earlier layouts live, calls visit the
// homes of a message oldest first, and create in the newest only. A shard has
// drained when no message in it has another home in the newest layout; when all
// have for long enough, the earlier layouts are forgotten, and shards that are
// not in the newest are dropped. The [layout.Keeper] does that.
//
// # A shard that was lost
//
// A shard in use without meta was lost, with its messages and its tombstones: a
// script that was sent before must not take effect after it. So whoever meets it,
// a producer, a poller or the keeper, binds it to an epoch that nobody has known
// before, and then puts the layout under that epoch. No home changes, and so the
// other shards are bound when somebody meets them. When the shard was made stands
// in its meta, as born: by that bridges tell the loss, and [Rows.Put] which rows
// are older. Who writes for a row writes under one epoch, see [ErrReload].
//
// # Rules of the scripts
//
// There is one Lua file per verb in scripts, with its own header. One clock: TIME, read
// once. All reads and checks come before the first write. Redis checks a
// script's first write only against its memory limit: every script but schedule
// and replace starts with a write that is always allowed, or a full Redis could
// never drain. A miss is false in Lua, not nil.
//
// # Durability
//
// WAIT and WAITAOF go behind the script on the same connection, in one pipeline
// to the node that holds the key. From Redis 8 and Valkey 8 on they cover the
// connection's own writes only, and a script that found its effect has written
// nothing: touch.lua between them is a write that changes nothing. What they
// count is checked; a shortfall is no error of the call. Where one has waited in
// vain, others do not, but for one at a time; and a part of the pool is never
// used to wait, see conn/gate.go.
//
// What a bridge writes is as durable as its queue asks, see [Queue.WithDurability]:
// a claim is confirmed apart from its making, since its poller goes on meanwhile; what
// [Rows] writes is not done before it is confirmed. A settlement is never waited for.
//
// # One call, one effect
//
// A command may run twice: a client resends it, a proxy delivers it late. The
// verbs of a producer (schedule, cancel, reschedule) carry an operation token, a
// span of Redis' time outside of which the script changes nothing, and
// the number of the run; see call.go. Tombstones that have expired are taken out by who
// has seen that clock run for as long as they live without being set: otherwise one that
// is set forward and back would take some along that a further run looks for. The verbs of a poller carry the claim's
// token.
package store
