// Package inlet does what the messages of a topic ask: schedule, cancel and reschedule.
//
//	source ──deliveries──► Parse ──operations──► levels ──► the queue in Redis ──results──► replies, dead ──► acknowledged
//
// parse.go decides what a message asks, inlet.go does it, and state.go keeps what operators ask
// about: whether it consumes, for what it waits, and what came of its messages. A [source.Source] delivers the
// messages of one broker to [Inlet.Handle] and acknowledges those that are done. What is not done
// is handed in again, and nothing behind it is taken meanwhile: so while Redis is away the messages
// wait at the broker, except one batch here.
//
// A message that was delivered twice has one effect. Each operation runs under a token that
// is made of the message's name at its broker, and Redis remembers the answer under it for a
// while ([store.Producer.Traced]). So whoever gets the message again, after a crash or a
// rebalance, gets that answer, and changes nothing.
//
// Operations of one identity are done in the order of their delivery; others at the same time.
package inlet
