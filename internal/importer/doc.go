// Package importer moves what waits in another system to a queue: the tasks of asynq, the jobs of
// BullMQ, and a dump of RabbitMQ's plugin.
//
// An [Origin] is the other system, an [Item] what waits there. An [Import] goes through the items in
// batches, and does four things with each. Redis does each of the first, third and fourth in one script:
//
//  1. Hold: the item leaves the set from which the other system's handlers take it, and goes to a set of
//     ours beside it. The journal, a hash beside it, notes under which nonce it is held, and what its message will be. Nothing is
//     held that has changed since it was read.
//  2. Schedule: a call that is named by the nonce, so a repetition of it has no second effect.
//  3. Remove: the item is deleted, and its entry in the journal. If it is not held any more, the other system has cancelled it
//     meanwhile: then the message is cancelled, and only the message that this nonce has made.
//  4. Forget: the entry of a cancelled item leaves the journal.
//
// A run that is broken off leaves entries in the journal, and the next one begins with these:
//
//	broken off after | item      | message   | the next run                          | cancelled in between, in the other system
//	1 hold           | held      | none      | schedules, removes                    | item is gone: cancels nothing, forgets
//	2 schedule       | held      | is there  | schedules without effect, removes     | item is gone: cancels the message, forgets
//	3 remove         | gone      | is there  | has nothing to do                     | says not found; a cancel here finds the message
//	3, was gone      | gone      | is there  | cancels the message, forgets          | –
//	cancel           | gone      | none      | cancels nothing, forgets              | –
//	4 forget         | gone      | none      | has nothing to do                     | –
//
// While an item is held, the other system's own cancel works: asynq's DeleteTask deletes from the set that is
// named as the task's state, and BullMQ's remove deletes the job. If its message is due within a minute, it may be published
// before the item is removed, so a cancel could be too late. Such an item is held as one that is being processed, and
// asynq and BullMQ refuse to cancel it, as they do then.
//
// Why not schedule first and hold nothing: handlers could take an item whose message is already published, so it
// would be done twice, and no later run could mend that. Why not delete first: a crash would lose it.
//
// Two imports of one origin at a time could undo each other's repairs, so each holds a lock, which expires when its holder dies.
package importer
