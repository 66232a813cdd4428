// Package settler tells rows what became of their messages.
//
// Where a message of a row ends in Redis, the script that ends it writes a line into
// the shard's ledger. The settler drains it:
//
//	ledger ──read──► fates ──offer──► database 1 ──absent──► database 2 ──► …
//	  ▲                                  │                       │
//	  │                                  ├ settled: the row says it now
//	  │                                  └ busy: somebody works on the row, or will
//	  └──────── forget ◄── settled, or absent in all that answered ── none is away
//
// So an entry leaves the ledger when a row says it, or when no database has a row that
// could. What is busy, or may be in a database that is away, stays where it is.
//
// Two machines decide that, and call nobody, so a test plays any story of them (TestBacklog):
// the backlog has what is signalled and not done, and a pass takes it, says what to read, to
// offer and to forget, and gives back what it leaves. The settler drives them.
//
// A poller signals a shard whose ledger has new entries; all held shards are read every
// 30 s, signalled or not. An acknowledgement that came after its claim had ended is in
// no ledger: the settler holds it in memory until the row has it.
package settler
