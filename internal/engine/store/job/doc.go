// Package job does the same to many messages of a queue, a step at a time. [CancelAll] does it at
// once, for one caller.
//
// # A machine and its driver
//
// A job in the hands of one runner is a machine, type course: told what has happened, it says what
// to do next. It reads no clock, waits for nothing and calls nobody, so a test plays any story of
// it (TestCourse). [Run] drives it, step by step; package jobs paces the steps.
//
//	       ┌─► find messages ──► ask which it has moved ──┐
//	       │   list, scan, look  (of a row, if it moves)  │
//	next ──┼─► a step has messages without an answer ─────┼─► keep ──► change ──► rest
//	       │                                              │    │
//	       └─► end: stopped, done, or too old ────────────┘    └─► rest: nothing to change, or
//	                                                               it has ended
//
// To keep is to write down all that is known of the job, and to renew the lease. Whatever fails
// before that is forgotten, and the step begins anew.
//
// # Why its tally is true
//
// A step finds messages, writes down which it is about to change and under which
// token, with where it goes on, and then changes them. The write fails where another
// runner has taken the job, and no run takes effect later than its lease. So who
// takes the job over finds the step whose outcome is not recorded, and asks once more
// under the same tokens: each run looks first what an earlier one has answered, which
// is remembered for a minute. What was not done by then is done now: the token in
// force must be the one that was matched. Later than a minute, one that is not there
// any more may be our own doing or another's, and counts as unknown.
//
// A message that was rescheduled may be met again. A token in force
// that begins with the job's mark tells that it was; a row's message keeps its token,
// and so the token of its operation is made of that, and stays remembered for as long
// as the job may last. An upper bound would not do: messages die, are parked and
// tried again meanwhile. That only messages count that were there at the start makes
// the job end.
//
// # Why it meets all of them
//
// What waits is listed first in the order in which it is due, so that a job with a rate is
// about what comes next before what comes later. But messages move while it is listed: one
// that is released, reclaimed, put back or tried earlier is behind the cursor. So then the
// job goes through the shards' messages by their names, which they keep wherever they
// are: a scan of a hash returns each that is in it from the scan's beginning to its end,
// and a server that has taken over, to which the cursor means nothing, has its shard
// scanned anew. The index of a tag is in the order of names itself, and a dead letter
// that comes later is listed later, so these are gone through once. Only what others put
// back from the dead letters meanwhile may be missed, and counts as one that came later.
//
// A message that was in flight when the job was about it stays known by its name, see
// Left. When the walk is over these are looked at again, round by round, until none is
// left or [Run.Finish] gives up on them: then they are what still matches.
package job
