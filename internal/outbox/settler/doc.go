// Package settler records in rows how their messages ended.
//
// When a message of a row ends in Redis, the script that ends it writes a line into
// the shard's ledger. The settler drains it:
//
//	ledger ──read──► fates ──offer──► database 1 ──absent──► database 2 ──► …
//	  ▲                                  │                       │
//	  │                                  ├ settled: the row says it now
//	  │                                  └ busy: another transaction works on the row, or will
//	  └──────── forget ◄── settled, or absent in all that answered ── none is away
//
// So an entry leaves the ledger when its row records the fate, or when no database has such a
// row. Busy entries, and those that may belong to a database that is away, stay.
//
// Two machines without I/O decide that, so a test can play any sequence of events (TestBacklog):
// the backlog keeps what was signalled and is not done; a pass takes it, says what to read, offer
// and forget, and gives back the rest. The settler drives them.
//
// A poller signals a shard whose ledger has new entries; all held shards are also read every
// 30 s. An acknowledgement that came after its claim had ended is in no ledger: the settler keeps
// it in memory until the row has it.
package settler
