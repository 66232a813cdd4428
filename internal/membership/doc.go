// Package membership makes the running bridges of a queue share its shards, and
// keeps each of them at the layout in force. It says who tries to poll a shard;
// the lease in Redis says who may, and the claim's token what counts. So two
// instances that disagree for a second waste calls and lose nothing.
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
// with Redis' clock, and brings back what all the others wrote. Who lives is
// judged by the change of the other's heartbeat over our own monotonic clock:
// Redis' clock may be set back by a failover, and then says for how long as it
// likes that the dead live and the living are dead. Time in which we ourselves
// had no answer counts for nobody.
//
// Shares go by names, so that a restart under the same name gets its shards
// back and a leftover of the earlier boot counts for nothing. A name that lives
// twice would have two instances try the same shards for ever: the one that came
// second finds the other in its first answer, sees its heartbeat advance, and
// ends. See roll.go.
//
// # The layout
//
// Who needs the layout learns of a change by the epoch that every claim answers
// with, by the hint on the layout's channel, by a shard without meta, or, where
// all that was lost, by a look every ten seconds. The instance that owns the
// queue itself is its keeper: it finishes changes, forgets layouts that have
// drained, and repairs fences. It looks at the shards while something is under
// way, and rarely else. See layout.go and upkeep.go.
//
// The package knows no fx, no poller and no Redis: [Store], [Keeper] and
// [Poller] are what it needs of them.
package membership
