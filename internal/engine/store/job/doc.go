// Package job applies one operation to many messages of a queue, step by step. [CancelAll] does
// so at once, for one caller.
//
// # A machine and its driver
//
// While one runner has it, a job is a machine, type course: it takes what has happened and
// returns what to do next. It reads no clock, never waits and calls nobody, so a test can play any
// sequence of events (TestCourse). [Run] drives it, step by step; package jobs paces the steps.
//
//	       ┌─► find messages ──► ask which it has moved ──┐
//	       │   list, scan, look  (of a row, if it moves)  │
//	next ──┼─► a step has messages without an answer ─────┼─► keep ──► change ──► rest
//	       │                                              │    │
//	       └─► end: stopped, done, or too old ────────────┘    └─► rest: nothing to change, or
//	                                                               it has ended
//
// Keep writes the whole record of the job to Redis and renews the lease. If anything fails
// before that, the draft is dropped, and the step begins again.
//
// # Why its tally is true
//
// A step finds messages, records which of them it is about to change, under which
// tokens, and where the walk continues, and then changes them. The write fails if
// another runner has taken the job, and no run takes effect after the lease. So the
// next runner finds the step whose results are not recorded, and repeats it under the
// same tokens. Each run first looks up the answer of an earlier run, which Redis
// remembers for a minute. A message that was not changed is changed now, if the token
// in force is still the one that was matched. After more than a minute, a message
// that is gone may have been ended by us or by somebody else, and counts as unknown.
//
// The walk may meet a message again that the job has rescheduled. Its token in force
// begins with the job's mark, which gives it away. A row's message keeps its token;
// so the token of its operation is derived from it, and Redis remembers that for as
// long as the job may last. An upper bound of due times would not do, because
// messages die, are parked and are retried meanwhile. The job ends because it only
// counts messages that were there at the start.
//
// Two reschedules of the same messages run one after the other ([Jobs.Ready]). Each would put its mark in the place of
// the other's, meet the message again, and move it again: by an hour each time, and so for ever.
//
// # Why it meets all of them
//
// The job first lists waiting messages in due order, so that a job with a rate handles
// those due next first. But messages move during the listing: one that is released,
// reclaimed, put back or retried earlier may end up before the cursor. So the job then
// scans the shards' messages by name, which does not change when they move. A scan of a
// hash returns every name that is in it from the scan's beginning to its end; if another
// server has taken over, to which the cursor means nothing, the scan of its shard starts
// again. One pass suffices for the index of a tag, which is in the order of names, and for
// dead letters, because those that come later are listed later. Only a dead letter that
// others put back meanwhile may be missed, and counts as one that came later.
//
// The job keeps the names of messages that were in flight when it came to them, see
// Left. After the walk it reads them again, round by round, until none is left or
// [Run.Finish] gives up on them; then they are counted as remaining.
package job
