// Package membership lets the running bridges of a queue share its shards, and
// keeps each of them at the layout in force. It decides who tries to poll a
// shard; the lease in Redis decides who may, and the claim's token what counts.
// So two instances that disagree for a second waste calls and lose nothing.
//
// A [Member] is one instance in one queue. Its turn comes once a second, and at
// once when a hint says that something has changed:
//
//	prepare ──► turn: heartbeat ──► who lives ──► our share ──► [Poller.Assign]
//	             ▲        │                          ▲
//	             │        │     layout, if it may have changed
//	             └────────┴──────────────────────────┘
//	             │        └─ our name lives twice ──► Run ends with [ErrNameTaken]
//	             └ a second, or a hint
//
// # Who lives
//
// An instance is "name/boot", see message.NewInstance; each heartbeat writes it
// with Redis' clock, and returns what all others wrote. An instance lives if
// its heartbeat changes, by our own monotonic clock: Redis' clock may be set
// back by a failover, and would then call the dead alive and the living dead
// for as long. Time in which we ourselves had no answer counts against nobody.
//
// Shares go by names, so that a restart under the same name gets its shards back
// and a leftover of the earlier boot is ignored. If a name lived twice, two
// instances would try the same shards for ever; so the second one, which finds
// the other in its first answer and sees its heartbeat advance, ends. See
// roll.go.
//
// # The layout
//
// An instance learns of a changed layout by the epoch in every claim's answer,
// by the hint on the layout's channel, by a shard without meta, or, if all that
// was lost, by a look every ten seconds. The instance that owns the queue
// itself is its keeper: it finishes changes, forgets drained layouts, and
// repairs fences. It checks the shards while something is under way, and rarely
// otherwise. See layout.go and upkeep.go.
//
// The package imports neither fx nor the poller nor Redis: [Store], [Keeper]
// and [Poller] are what it needs of them.
package membership
