// Package relay takes the pending rows of one database to Redis: messages that are due
// within the horizon, and cancels and reschedules at once.
//
// # Machines and their drivers
//
// Several lanes work in parallel, each on one batch of one queue at a time. A lane (type lane) is a
// machine: it takes events and returns the next action. It has no clock and does no I/O, so a
// test can play any sequence of events (TestLane). Its driver has the clock, sleeps, and calls
// database and Redis:
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
// An identity's operations are judged by another machine (type judgement): it returns the question
// that it needs answered, takes Redis' answer, and collects verdicts (TestJudgement). If there are two
// Redises, an owner decides which of them the rows of a queue belong to.
//
// If a transaction dies after Redis has answered, the next relay that locks its rows repeats it.
// Redis knows the token and gives the same answer.
//
// The store is pinned before the rows are read. If Redis loses something after that, it refuses
// the batch's writes, and the rows are read again.
//
// Rows that must wait delay no others. If all rows of a batch wait, the queue backs off. If only
// some wait, the next batch continues behind this one, after a full look and a fast one alike. A
// row that is blocked by another message of its id is left out alone, for a second.
//
// While a snapshot of the database is open, as during a dump, a full look walks over everything
// relayed since then, because no database removes index entries meanwhile. If full looks are
// slow, they take a twentieth of a lane's time, and the looks in between ask only for new rows:
// those written, or come within the horizon, in the last seconds. These are locked by number.
// The first lane leaves slow looks to the others, so no new row waits for one. The next full look
// finds rows of transactions that took many seconds, and rows that had to wait or are pending
// again. It comes in time however rarely the relay polls, and gets more time after a timeout, see
// sight.
//
// Beside the lanes, one goroutine compares clocks, counts pending rows and purges ended ones; one
// refuses rows beyond the horizon that have a wrong topic; one wakes the lanes on PostgreSQL's
// notifications.
package relay
