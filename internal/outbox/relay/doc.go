// Package relay takes the pending rows of one database to Redis: messages that are due
// within the horizon, and cancels and reschedules at once.
//
// # Machines and their drivers
//
// Several lanes work side by side, each on one batch of one queue at a time. A lane is a machine,
// type lane: told what has happened, it says what to do next. It reads no clock, waits for
// nothing and calls nobody, so a test plays any story of it (TestLane). Its driver has the clock,
// sleeps, and asks database and Redis:
//
//	        ┌─► look: at everything, or at what is new (sight) ──► looked, timedOut ─┐
//	        │                                                                         │
//	next ───┼─► take a batch: the next step of the round ────────► took ──────────────┼─► next
//	        │                                                                         │
//	        ├─► rest: nothing is left, or wake the others, since there is more        │
//	        └─► back off ◄──────────────────────────────────────── failed ◄───────────┘
//
// A batch is one transaction:
//
//	pin ──► begin ──► lock ──► call Redis ──► judge ──► write, commit ──► report
//	                    │                       │
//	                    │                       └ a judgement: what must be known of an operation,
//	                    │                         and what follows for the rows from the answer
//	                    └ messages by due time: one put a batch; operations with all pending rows of
//	                      their identities, or not at all: in order by identity, 16 side by side
//
// An identity's operations are judged by a machine, too, type judgement: it says what it must
// know, is told what Redis has answered, and collects verdicts (TestJudgement). Whose the rows of
// a queue are, where there are two Redis, an owner rules.
//
// A transaction that dies after Redis has answered is repeated by whoever locks its
// rows next. Redis knows the token, and answers the same again.
//
// The store is pinned before the rows are read. Where Redis loses something after
// that, it refuses what the batch writes, and the rows are read anew.
//
// What must wait delays nothing else. A batch whose rows all wait has its queue rest for
// longer and longer. Where only some wait, the next batch goes on behind it, whether it was found
// by a slow look or a fast one. A row that another message of its id is in the way of waits,
// too, but rests alone: it is left out for a second.
//
// A look at everything walks over all that was relayed while somebody holds a snapshot
// of the database, as a dump does: no database forgets entries of an index meanwhile.
// Where it is slow, it takes a twentieth of the time of a lane, and the looks in
// between ask for new rows only: those that were written, or came within the horizon,
// since some seconds ago. These are locked by number. The first lane leaves slow looks to the
// others, so that no new row waits for one. What a transaction of many
// seconds has written, and what had to wait or is pending again, is found by the next look at
// everything, which comes in time however seldom the relay polls, and is given more time
// where it has not ended, see sight.
//
// Beside the lanes, one goroutine compares clocks, counts what waits and purges what
// has ended; one refuses rows beyond the horizon whose topic is wrong; another wakes
// the lanes where PostgreSQL notifies.
package relay
