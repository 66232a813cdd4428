// Package recurring keeps the recurring schedules of a queue, and makes messages of their firings.
//
// # A firing
//
// Each firing is an ordinary message of the queue, whose id is NAME@ and its nominal time in UTC. So all
// that the queue does for a message it does for a firing. The record of a schedule, in one hash of the
// queue, says up to when the firings are decided. They are scheduled 30 s ahead, and the next one always.
//
// # Why each firing comes once
//
// Anybody who has read a record may do what is next for it ([Schedules.Step]): instances of the bridge, and whoever changes
// a schedule and finds work that is not finished. Several may do it at once, break off, and be late:
//
//   - A record is only changed by the script recurring.lua, which compares it with what the caller has read.
//     No record comes back, since the firings that are decided only become more, and each set, pause and resume
//     makes another revision.
//   - First a step writes down which firings are next (pending), then it schedules them, then it
//     crosses them off. If it breaks off, the next one finds them pending and schedules them again.
//   - The call that schedules a firing has a name, made of revision and time, see [store.Producer.Traced]. It has one effect,
//     whoever makes it and how often. Its trace lives for a day; a firing that is pending for
//     half of that, since no bridge has lived, and whose time is over, is left out.
//
// # Why none comes of a revision that has ended
//
// A change of a schedule makes another revision and, in the same step, writes down the firings of the old one that are not
// due yet (stale). It cancels each by the name of the call that schedules it, wherever the message has been moved to, and so
// that a planner's call of that name has no effect any more. Whoever cancels it is told the same, as that call has a name, too. A firing that is
// in flight by then, or has ended, is spent: the new revision does not make it again. Then the change crosses the stale firings off. Only then is
// the new revision planned, and only then has the change been made, for its caller.
//
// A failover of Redis may take back any of these writes, as it may take back a message.
package recurring
