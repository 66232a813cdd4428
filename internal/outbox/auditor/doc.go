// Package auditor compares rows that say that Redis has their message with Redis, and
// puts back what was lost, whoever has lost it.
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
// A comparison is that of a chunk, as a machine: told what Redis and the database have answered, it
// says what to ask, read, put, renew or tell next, until nothing is left (TestComparison). Which
// rows a step compares, turns say (TestTurns). Passes and watches drive them.
//
// It locks no row, but one whose message waits under a token from before, see renew.
// Whatever ended a message since its row was read has left a trace in Redis that lives longer than those 25 s, and the put obeys it; a loss after the store
// was pinned has it refused. So it may run beside everything else, and beside others of
// its kind.
//
// Where most of a chunk was missing, the next is read whole and put without asking.
//
// By itself it compares all rows at its start and when it is told of a loss, then once
// more half a minute later; after that the overdue ones in rounds, one every 30 s or as
// long as half of the rate makes it, and all others in turn. What is due at 0 stands in
// MySQL's index among the operations that have ended: it is a round of its own, in steps
// that are bounded by what they read and not by what they find.
//
// By hand it can also remove from Redis what has ended by its row, as after a restore of
// Redis from a backup.
package auditor
