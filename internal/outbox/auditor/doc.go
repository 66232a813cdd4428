// Package auditor compares rows that say that Redis has their message with Redis, and
// puts back what was lost, no matter who lost it.
//
//	read 1,000 stored rows, by due time ──► ask Redis for their tokens
//	                                              │
//	    there: done ◄─────────────────────────────┤
//	    ended: the row is told ◄──────────────────┤
//	                                              ▼ nothing known: lost
//	             pin the store, read the rows again, whole, as they are now
//	                                              │ without those that have changed,
//	                                              ▼ or have a pending operation
//	                             put under the row's token, in 25 s
//
// A comparison of one chunk is a machine: it takes the answers of Redis and the database and returns
// what to ask, read, put, renew or tell next, until nothing is left (TestComparison). Turns choose
// the rows of each step (TestTurns). Passes and watches drive them.
//
// It locks no row, except one whose message waits under an earlier token, see renew. Whatever
// ended a message since its row was read has left a tombstone that lives longer than those 25 s,
// and the put obeys it; after a loss since the store was pinned, the put is refused. So an
// auditor may run beside everything else, other auditors included.
//
// If most of a chunk was missing, the next chunk is read whole and put without asking.
//
// It compares all rows at its start and after a hint of a loss, and once more half a minute
// later. After that it compares overdue rows in rounds, one every 30 s or as long as half of the
// rate takes, and all others in turn. In MySQL's index, rows due at 0 stand among the ended
// operations, so they are a round of their own, whose steps are bounded by what they read and
// not by what they find.
//
// On an operator's command it also removes from Redis what has ended by its row, for example after
// a restore of Redis from a backup.
package auditor
